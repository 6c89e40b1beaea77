/**
 * Looks at a file before SQLite does, so that a file that is not ours stays as it is, byte for byte.
 *
 * Opening a database for writing may roll back a journal, move pages out of a log, or create files beside it. So
 * the header is read with plain file access first, and only an empty file, or one that carries our mark and a
 * format that we know, is ever opened for writing.
 */
import { NeoTaskError, StorageUnavailableError } from '@neotask/core'
import Sqlite from 'better-sqlite3'
import { closeSync, openSync, readSync, statfsSync, statSync, type Stats } from 'node:fs'
import { dirname } from 'node:path'
import { APPLICATION_ID } from './schema.js'

const MAGIC = 'SQLite format 3\u0000'
const HEADER = 100

/** File systems of other machines: locks and shared memory do not work across them. */
const NETWORK: ReadonlyMap<number, string> = new Map([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x564c, 'NCP'],
  [0x5346414f, 'AFS'],
  [0x00c36400, 'Ceph'],
])

/** The name of the network file system with this type number (`statfs`), if it is one that we know. */
export function networkFileSystem(type: number): string | undefined {
  return NETWORK.get(type >>> 0)
}

/**
 * Decides whether the file may be opened for writing.
 *
 * @param newest the newest format that we know
 * @returns whether there is a file
 * @throws NeoTaskError `STORAGE_UNAVAILABLE` or `STORAGE_FORMAT`, naming the file
 */
export function checkFile(path: string, newest: number): boolean {
  const folder = dirname(path)
  const stats = stat(path)
  checkFileSystem(stats ? path : folder, path)
  if (!stats) {
    if (!stat(folder)?.isDirectory()) throw unavailable(path, `its folder ${folder} does not exist`)
    return false
  }
  if (stats.isDirectory()) throw unavailable(path, 'it is a directory')
  // Asked of the mode rather than of `access`: the superuser may write everything, but a mark is a mark.
  if ((stats.mode & 0o222) === 0) throw unavailable(path, 'it is read-only')
  const header = Buffer.alloc(HEADER)
  const read = readHeader(path, header)
  if (read === 0) return true
  if (read < HEADER || header.toString('latin1', 0, 16) !== MAGIC)
    throw format(path, 'it is not an SQLite database')
  checkMark(path, header, newest)
  checkLength(path, header, stats)
  return true
}

/** The stored marks of a database, by header or by pragma. */
export function checkVersion(path: string, applicationId: number, version: number, newest: number): void {
  if (applicationId !== APPLICATION_ID) {
    throw format(path, 'it is the database of another program (to share one, pass its handle as `database`)')
  }
  checkFormat(path, version, newest)
}

export function checkFormat(path: string, version: number, newest: number): void {
  if (version > newest) {
    throw format(path, `it has format ${version}, and this version of NeoTask knows formats up to ${newest}`)
  }
}

export function format(path: string, what: string, cause?: unknown): NeoTaskError {
  return new NeoTaskError('STORAGE_FORMAT', `cannot use ${path}: ${what}`, { cause })
}

export function unavailable(
  path: string,
  what: string,
  cause?: unknown,
  retryable = false,
): StorageUnavailableError {
  return new StorageUnavailableError('STORAGE_UNAVAILABLE', `cannot open ${path}: ${what}`, {
    cause,
    retryable,
  })
}

function stat(path: string): Stats | undefined {
  try {
    return statSync(path)
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    throw unavailable(path, message, cause)
  }
}

function readHeader(path: string, into: Buffer): number {
  try {
    const file = openSync(path, 'r')
    try {
      return readSync(file, into, 0, HEADER, 0)
    } finally {
      closeSync(file)
    }
  } catch (cause) {
    throw unavailable(path, (cause as Error).message, cause)
  }
}

function checkFileSystem(where: string, path: string): void {
  let type: number
  try {
    ;({ type } = statfsSync(where))
  } catch {
    return
  }
  const name = networkFileSystem(type)
  if (name)
    throw unavailable(path, `it lies on a network file system (${name}), where its log cannot be shared`)
}

function checkMark(path: string, header: Buffer, newest: number): void {
  const version = header.readUInt32BE(60)
  const applicationId = header.readUInt32BE(68)
  if (applicationId === 0 && version === 0 && isEmptyDatabase(path)) return
  checkVersion(path, applicationId, version, newest)
}

/** A database that somebody created and put nothing in. */
function isEmptyDatabase(path: string): boolean {
  let database: Sqlite.Database | undefined
  try {
    database = new Sqlite(path, { readonly: true, fileMustExist: true })
    return database.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get() === undefined
  } catch (cause) {
    throw format(path, 'it cannot be read as an SQLite database', cause)
  } finally {
    database?.close()
  }
}

/** A file that was cut off. Its length is as the header says, unless a log beside it is still to be moved in. */
function checkLength(path: string, header: Buffer, stats: Stats): void {
  const log = stat(`${path}-wal`)
  if (log && log.size > 0) return
  const size = header.readUInt16BE(16)
  const pageSize = size === 1 ? 65_536 : size
  const pages = header.readUInt32BE(28)
  // The count is valid only when both change counters agree (an old SQLite wrote it last otherwise).
  if (header.readUInt32BE(24) !== header.readUInt32BE(92)) return
  if (stats.size < pages * pageSize) {
    throw format(path, `it was cut off: ${stats.size} bytes of ${pages * pageSize}`)
  }
}
