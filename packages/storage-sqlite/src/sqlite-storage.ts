/**
 * The SQLite storage: tasks in one file, which several processes of one machine may share.
 *
 * With `synchronous: 'normal'` (the default) a committed task survives the death of the process at any instant; a
 * power cut or a crash of the operating system may lose the commits of the last moments, never the file. With
 * `'full'` it survives those too, and each commit waits for the disk.
 */
import { optionError, systemClock, type Clock, type Storage, type StorageInfo } from '@neotask/core'
import type SqliteDatabase from 'better-sqlite3'
import { Connection } from './connection.js'
import { Database } from './database.js'
import type { PruneCursors } from './retention.js'
import { SqliteLocks } from './sqlite-locks.js'
import { SqliteNotices } from './sqlite-notices.js'
import { BATCH, SqliteQueue } from './sqlite-queue.js'
import { SqliteRecords } from './sqlite-records.js'
import { SqliteSession, WORK } from './sqlite-session.js'
import { SqliteUpkeep } from './sqlite-upkeep.js'

export interface SqliteStorageOptions {
  /** The file, made when it does not exist; its folder must. `':memory:'` keeps all in this process. */
  readonly path?: string | undefined
  /**
   * A better-sqlite3 handle of your own, instead of `path`. Our tables (`neotask_…`) stand beside yours. The handle is
   * never closed by us, its pragmas stay as they are, and tasks submitted synchronously inside your transaction are
   * committed or rolled back with it.
   */
  readonly database?: SqliteDatabase.Database | undefined
  /** What a commit waits for: `'normal'`, or `'full'` for the disk. Only with `path`. Default: `'normal'`. */
  readonly synchronous?: 'normal' | 'full' | undefined
  /** ms that a call may block the event loop while another process writes, from 0 to 20. Default: 20. */
  readonly busyTimeout?: number | undefined
  /** Where its time comes from. Default: the system's clock. */
  readonly clock?: Clock | undefined
}

/** Makes a storage in an SQLite file. @example sqliteStorage('./tasks.db') */
export function sqliteStorage(target: string | SqliteStorageOptions): Storage {
  const options = typeof target === 'string' ? { path: target } : target
  checkOptions(options)
  const { path, database, synchronous = 'normal', busyTimeout = 20, clock = systemClock } = options
  const connect = (): Promise<Database> =>
    Database.open({ path, handle: database, synchronous, busyTimeout, clock })
  return new SqliteStorage(connect, database ? !database.memory : path !== ':memory:')
}

/** Callers without types get the same errors. */
function checkOptions(options: unknown): asserts options is SqliteStorageOptions {
  if (options === null || typeof options !== 'object') {
    throw optionError('path', 'the name of a file, or options', options)
  }
  const { path, database, synchronous, busyTimeout } = options as {
    [Name in keyof SqliteStorageOptions]?: unknown
  }
  if (database === undefined) {
    if (typeof path !== 'string' || path === '') throw optionError('path', 'the name of a file', path)
  } else {
    if (path !== undefined) throw optionError('path', 'nothing when a database is given', path)
    if (!isHandle(database)) throw optionError('database', 'a handle of better-sqlite3', database)
  }
  if (synchronous !== undefined && synchronous !== 'normal' && synchronous !== 'full') {
    throw optionError('synchronous', "'normal' or 'full'", synchronous)
  }
  if (busyTimeout === undefined) return
  if (!Number.isInteger(busyTimeout) || Number(busyTimeout) < 0 || Number(busyTimeout) > 20) {
    throw optionError('busyTimeout', 'an integer from 0 to 20', busyTimeout)
  }
}

function isHandle(value: unknown): boolean {
  if (value === null || typeof value !== 'object') return false
  const { prepare, pragma } = value as { prepare?: unknown; pragma?: unknown }
  return typeof prepare === 'function' && typeof pragma === 'function'
}

class SqliteStorage implements Storage {
  readonly name = 'sqlite'
  readonly durable: boolean
  readonly limits: Storage['limits'] = { enqueue: BATCH, work: WORK }
  readonly queue: SqliteQueue
  readonly session: SqliteSession
  readonly upkeep: SqliteUpkeep
  readonly records: SqliteRecords
  readonly locks: SqliteLocks
  readonly notices: SqliteNotices
  readonly #connection = new Connection()
  readonly #connect: () => Promise<Database>
  #opening: Promise<StorageInfo> | undefined

  constructor(connect: () => Promise<Database>, durable: boolean) {
    const cursors: PruneCursors = new Map()
    this.#connect = connect
    this.durable = durable
    this.notices = new SqliteNotices(this.#connection)
    this.queue = new SqliteQueue(this.#connection, this.notices, cursors)
    this.session = new SqliteSession(this.#connection, this.notices, cursors)
    this.upkeep = new SqliteUpkeep(this.#connection, this.notices, cursors)
    this.records = new SqliteRecords(this.#connection)
    this.locks = new SqliteLocks(this.#connection)
  }

  open(): Promise<StorageInfo> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  async close(): Promise<void> {
    // A storage that is just opening is closed when it is open.
    await this.#opening?.catch(() => undefined)
    this.#opening = undefined
    if (!this.#connection.isOpen) return
    const { database } = this.#connection
    this.notices.stop()
    this.#connection.set(undefined)
    await database.close()
  }

  async #open(): Promise<StorageInfo> {
    const database = await this.#connect()
    let generator
    try {
      generator = await database.patiently(() => database.newGenerator())
    } catch (error) {
      await database.close()
      throw error
    }
    this.#connection.set(database)
    this.notices.start()
    return { format: database.format, runId: database.runId, generator }
  }
}
