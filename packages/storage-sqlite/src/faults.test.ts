/** Files that cannot be used: a clear error that names the file, and not a byte of it changed. */
import { isRefusal, NeoTaskError, optionError, StorageUnavailableError, ValidationError } from '@neotask/core'
import Sqlite from 'better-sqlite3'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { networkFileSystem } from './file-check.js'
import { sqliteStorage, type SqliteStorageOptions } from './index.js'

let folder: string
let path: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'neotask-faults-'))
  path = join(folder, 'tasks.db')
})
afterEach(() => rmSync(folder, { recursive: true }))

const ref = { tenant: 'acme', queue: 'mail' }
const hash = (): string => createHash('sha256').update(readFileSync(path)).digest('hex')

async function errorOf(action: Promise<unknown>): Promise<NeoTaskError> {
  const error: unknown = await action.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(NeoTaskError)
  return error as NeoTaskError
}

/** Opening fails with this code, names the file, and leaves it as it is, with nothing beside it. */
async function refuses(code: string, what: RegExp): Promise<void> {
  const before = hash()
  const names = readdirSync(folder)
  const error = await errorOf(sqliteStorage(path).open())
  expect(error.code).toBe(code)
  expect(error.message).toContain(path)
  expect(error.message).toMatch(what)
  expect(hash()).toBe(before)
  expect(readdirSync(folder)).toEqual(names)
}

async function makeFile(): Promise<void> {
  const storage = sqliteStorage(path)
  await storage.open()
  await storage.queue.enqueue(ref, [
    { id: 'a', kind: '', payload: 'x'.repeat(50_000), codec: 'json', priority: 2 },
  ])
  await storage.close()
}

test('a file that is no database is refused', async () => {
  writeFileSync(path, 'These are not the bytes you are looking for. '.repeat(100))
  await refuses('STORAGE_FORMAT', /not an SQLite database/)
})

test('a file shorter than a header is refused', async () => {
  writeFileSync(path, 'short')
  await refuses('STORAGE_FORMAT', /not an SQLite database/)
})

test('the database of another program is refused', async () => {
  new Sqlite(path).exec('CREATE TABLE theirs (a)').close()
  await refuses('STORAGE_FORMAT', /another program/)
})

test('a database with the marks of another program is refused', async () => {
  const theirs = new Sqlite(path)
  theirs.pragma('application_id = 1234')
  theirs.pragma('user_version = 7')
  theirs.close()
  await refuses('STORAGE_FORMAT', /another program/)
})

test('a newer format is refused', async () => {
  await makeFile()
  const newer = new Sqlite(path)
  newer.pragma('journal_mode = DELETE')
  newer.pragma('user_version = 99')
  newer.close()
  await refuses('STORAGE_FORMAT', /format 99/)
})

test('a file that was cut off is refused', async () => {
  await makeFile()
  truncateSync(path, 20_000)
  await refuses('STORAGE_FORMAT', /cut off/)
})

test('a file whose pages are damaged is refused', async () => {
  await makeFile()
  const bytes = readFileSync(path)
  bytes.fill(0xa5, 4096)
  writeFileSync(path, bytes)
  await refuses('STORAGE_FORMAT', /damaged/)
})

test('a read-only file is refused, to the superuser too', async () => {
  await makeFile()
  chmodSync(path, 0o444)
  await refuses('STORAGE_UNAVAILABLE', /read-only/)
})

test('a directory is refused', async () => {
  mkdirSync(path)
  const error = await errorOf(sqliteStorage(path).open())
  expect(error).toBeInstanceOf(StorageUnavailableError)
  expect(error.message).toContain(`${path}: it is a directory`)
})

test('a missing folder is named, and not made', async () => {
  const deep = join(folder, 'missing', 'tasks.db')
  const error = await errorOf(sqliteStorage(deep).open())
  expect(error.code).toBe('STORAGE_UNAVAILABLE')
  expect(error.message).toContain(`its folder ${join(folder, 'missing')} does not exist`)
  expect(readdirSync(folder)).toEqual([])
})

test(
  'a file that another process keeps locked is unavailable, and may be tried again',
  { timeout: 30_000 },
  async () => {
    await makeFile()
    const other = new Sqlite(path)
    other.pragma('locking_mode = EXCLUSIVE')
    other.exec('BEGIN EXCLUSIVE; COMMIT')
    try {
      const before = hash()
      const error = await errorOf(sqliteStorage(path).open())
      expect(error.code).toBe('STORAGE_UNAVAILABLE')
      expect(error.retryable).toBe(true)
      expect(error.message).toContain(path)
      expect(hash()).toBe(before)
    } finally {
      other.close()
    }
    const storage = sqliteStorage(path)
    await storage.open()
    await storage.close()
  },
)

test('network file systems are known by their numbers', () => {
  expect(networkFileSystem(0x6969)).toBe('NFS')
  expect(networkFileSystem(-11317950)).toBe('CIFS')
  expect(networkFileSystem(0xef53)).toBeUndefined()
})

test('an empty file, and an empty database, become ours', async () => {
  writeFileSync(path, '')
  await makeFile()
  rmSync(path)
  const empty = new Sqlite(path)
  empty.pragma('journal_mode = WAL')
  empty.close()
  await makeFile()
})

test('a call before open, and one after close, says what is missing', async () => {
  const storage = sqliteStorage(path)
  expect(
    (await errorOf(storage.queue.enqueue(ref, []).then(() => storage.queue.counts(ref)))).message,
  ).toMatch(/call open/)
  await storage.open()
  await storage.open()
  await storage.close()
  await storage.close()
  expect((await errorOf(Promise.resolve().then(() => storage.queue.counts(ref)))).code).toBe(
    'STORAGE_UNAVAILABLE',
  )
})

test('a storage may be opened again after a close', async () => {
  await makeFile()
  const storage = sqliteStorage(path)
  const { runId } = await storage.open()
  await storage.close()
  expect((await storage.open()).runId).toBe(runId)
  expect((await storage.queue.counts(ref)).pending).toBe(1)
  await storage.close()
})

test.each<[string, unknown]>([
  ['path', ''],
  ['path', { path: 5 }],
  ['path', {}],
  ['path', null],
  ['path', { path: 'a', database: new Sqlite(':memory:') }],
  ['database', { database: 'tasks.db' }],
  ['synchronous', { path: 'a', synchronous: 'off' }],
  ['busyTimeout', { path: 'a', busyTimeout: 5000 }],
])('a bad %s is refused at once', (option, options) => {
  expect(() => sqliteStorage(options as SqliteStorageOptions)).toThrow(ValidationError)
  expect(() => sqliteStorage(options as SqliteStorageOptions)).toThrow(
    optionError(option, '', '').message.split(':')[0],
  )
})

test('an error that SQLite finds in one unit reaches its owner only', async () => {
  const storage = sqliteStorage(path)
  await storage.open()
  const task = (id: string, more = {}) => ({
    id,
    kind: '',
    payload: 'p',
    codec: 'json',
    priority: 2,
    ...more,
  })
  const bad = task('bad', { options: { not: 'text' } })
  const outcomes = await storage.queue.enqueue(ref, [task('a'), [task('b'), bad], task('c')])
  expect(outcomes.map((outcome) => (isRefusal(outcome) ? outcome.code : outcome))).toEqual([
    'accepted',
    'PAYLOAD_INVALID',
    'PAYLOAD_INVALID',
    'accepted',
  ])
  const counts = await storage.queue.counts(ref)
  expect(counts.pending).toBe(2)
  expect(await storage.upkeep.reconcile(ref, 100)).toEqual({ mended: 0 })
  await storage.close()
})

test('a settlement that SQLite does not take fails its task, and no other', async () => {
  const storage = sqliteStorage(path)
  await storage.open()
  const rule = { age: 1e9, count: 1e6 }
  await storage.session.open('s', {
    ttl: 10_000,
    node: { id: 'n', host: 'h', pid: 1, concurrency: 1, queue: 'default', kinds: [''] },
    serves: { ...ref, kinds: [''] },
    retention: { success: rule, failed: rule },
    maxReclaims: 3,
  })
  const task = (id: string) => ({ id, kind: '', payload: 'p', codec: 'json', priority: 2 })
  await storage.queue.enqueue(ref, [task('a'), task('b')])
  const call = {
    session: 's',
    ack: 0,
    ackTaken: 0,
    marks: [],
    reports: [],
    settlements: [],
    renew: false,
    want: 0,
  }
  const { token } = await storage.session.work({ ...call, want: 2 })
  const result = { outcome: 'success', codec: 'json', token } as const
  const settlements = [
    { ...result, id: 'a', result: { not: 'encoded' } as unknown as string },
    { ...result, id: 'b', result: 'ok' },
  ]
  expect((await storage.session.work({ ...call, ack: token, settlements })).stale).toEqual([])
  const [a, b] = await storage.queue.get(ref, ['a', 'b'])
  expect([a?.state, a?.reason, b?.state, b?.result]).toEqual(['failed', 'PAYLOAD_INVALID', 'success', 'ok'])
  expect(await storage.upkeep.reconcile(ref, 100)).toEqual({ mended: 0 })
  await storage.close()
})

test('a file without its counter of claims gives no task away', async () => {
  await makeFile()
  const damaged = new Sqlite(path)
  damaged.exec(`DELETE FROM neotask_meta WHERE key = 'token'`)
  damaged.close()
  const storage = sqliteStorage(path)
  await storage.open()
  const rule = { age: 1e9, count: 1e6 }
  await storage.session.open('s', {
    ttl: 10_000,
    node: { id: 'n', host: 'h', pid: 1, concurrency: 1, queue: 'default', kinds: [''] },
    serves: { ...ref, kinds: [''] },
    retention: { success: rule, failed: rule },
    maxReclaims: 3,
  })
  const claim = { session: 's', ack: 0, ackTaken: 0, marks: [], reports: [], settlements: [], renew: false }
  const error = await errorOf(storage.session.work({ ...claim, want: 1 }))
  expect(error).toMatchObject({
    code: 'STORAGE_FORMAT',
    message: expect.stringContaining('claims') as string,
  })
  expect(await storage.queue.counts(ref)).toMatchObject({ pending: 1, running: 0 })
  await storage.close()
})
