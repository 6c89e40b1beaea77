/** The stored format: where its version stands, and the way from an older one. */
import { systemClock } from '@neotask/core'
import Sqlite from 'better-sqlite3'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Database } from './database.js'
import { sqliteStorage } from './index.js'
import { APPLICATION_ID, MIGRATIONS } from './schema.js'

let folder: string
let path: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'neotask-migration-'))
  path = join(folder, 'tasks.db')
})
afterEach(() => rmSync(folder, { recursive: true }))

const ref = { tenant: 'acme', queue: 'mail' }
const NEXT = [...MIGRATIONS, 'ALTER TABLE neotask_queues ADD COLUMN colour TEXT']
const BROKEN = [
  ...NEXT,
  'ALTER TABLE neotask_queues ADD COLUMN size TEXT; ALTER TABLE nobody ADD COLUMN size TEXT',
]

const open = (migrations?: readonly string[], handle?: Sqlite.Database): Promise<Database> =>
  Database.open({ path, handle, synchronous: 'normal', busyTimeout: 20, clock: systemClock, migrations })

async function makeTask(): Promise<void> {
  const storage = sqliteStorage(path)
  await storage.open()
  await storage.queue.enqueue(ref, [{ id: 'a', kind: '', payload: 'p', codec: 'json', priority: 2 }])
  await storage.close()
}

function header(): { id: unknown; version: unknown; journal: unknown } {
  const database = new Sqlite(path, { readonly: true })
  const id = database.pragma('application_id', { simple: true })
  const version = database.pragma('user_version', { simple: true })
  const journal = database.pragma('journal_mode', { simple: true })
  database.close()
  return { id, version, journal }
}

test('a new file carries our mark and the format in its header', async () => {
  await makeTask()
  expect(header()).toEqual({ id: APPLICATION_ID, version: MIGRATIONS.length, journal: 'wal' })
})

test('an older file is brought to the present format, and keeps its tasks', async () => {
  await makeTask()
  const database = await open(NEXT)
  expect(database.get('SELECT colour, pending FROM neotask_queues')).toEqual([null, 1])
  await database.close()
  expect(header().version).toBe(NEXT.length)
})

test('a version that does not know the format leaves the file alone', async () => {
  await (await open(NEXT)).close()
  await expect(sqliteStorage(path).open()).rejects.toMatchObject({ code: 'STORAGE_FORMAT' })
})

test('a migration that fails changes nothing', async () => {
  await makeTask()
  await expect(open(BROKEN)).rejects.toThrow(/nobody/)
  expect(header().version).toBe(MIGRATIONS.length)
  const storage = sqliteStorage(path)
  await storage.open()
  expect((await storage.queue.counts(ref)).pending).toBe(1)
  await storage.close()
})

test('in a database of its owner the version stands in a table', async () => {
  const handle = new Sqlite(path)
  handle.pragma('user_version = 42')
  await (await open(undefined, handle)).close()
  await (await open(NEXT, handle)).close()
  expect(handle.prepare(`SELECT value FROM neotask_meta WHERE key = 'format'`).pluck().get()).toBe(
    NEXT.length,
  )
  expect(handle.pragma('user_version', { simple: true })).toBe(42)
  await expect(open(undefined, handle)).rejects.toMatchObject({ code: 'STORAGE_FORMAT' })
  handle.close()
})

test('many that open a new file at once make it once', async () => {
  const storages = Array.from({ length: 8 }, () => sqliteStorage(path))
  const infos = await Promise.all(storages.map((storage) => storage.open()))
  expect(new Set(infos.map((info) => info.runId)).size).toBe(1)
  expect(new Set(infos.map((info) => info.generator)).size).toBe(infos.length)
  for (const storage of storages) await storage.close()
})

test('a power cut between the making of the file and its first page leaves a file that works', async () => {
  const empty = new Sqlite(path)
  empty.pragma('journal_mode = WAL')
  empty.exec('CREATE TABLE t (a); DROP TABLE t')
  empty.close()
  await makeTask()
  expect(header().id).toBe(APPLICATION_ID)
})
