/** Tasks and a user's own rows in one transaction, on his own handle. */
import type { NewTask, Storage } from '@neotask/core'
import Sqlite from 'better-sqlite3'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { sqliteStorage } from './index.js'

let folder: string
let database: Sqlite.Database
let storage: Storage

const ref = { tenant: 'acme', queue: 'mail' }
const task = (id: string): NewTask => ({ id, kind: '', payload: id, codec: 'json', priority: 2 })
const enqueueSync = (...ids: string[]): unknown => storage.queue.enqueueSync?.(ref, ids.map(task))
const states = async (...ids: string[]) => (await storage.queue.get(ref, ids)).map((record) => record?.state)
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'neotask-transaction-'))
  database = new Sqlite(join(folder, 'app.db'))
  database.pragma('user_version = 42')
  database.exec('CREATE TABLE users (name TEXT PRIMARY KEY)')
  storage = sqliteStorage({ database })
  await storage.open()
})
afterEach(async () => {
  await storage.close()
  database.close()
  rmSync(folder, { recursive: true })
})

test('a task that is enqueued in a transaction is committed with it', async () => {
  database.transaction(() => {
    database.prepare('INSERT INTO users VALUES (?)').run('ada')
    expect(enqueueSync('welcome-ada')).toEqual(['accepted'])
  })()
  expect(await states('welcome-ada')).toEqual(['pending'])
  expect((await storage.queue.counts(ref)).pending).toBe(1)
})

test('and rolled back with it, leaving no trace', async () => {
  await storage.queue.enqueue(ref, [task('before')])
  const failing = database.transaction(() => {
    database.prepare('INSERT INTO users VALUES (?)').run('ada')
    enqueueSync('welcome-ada', 'before')
    throw new Error('no')
  })
  expect(failing).toThrow('no')
  expect(await states('welcome-ada', 'before')).toEqual([undefined, 'pending'])
  expect((await storage.queue.counts(ref)).pending).toBe(1)
  expect(enqueueSync('welcome-ada')).toEqual(['accepted'])
  expect(await storage.upkeep.reconcile(ref, 100)).toEqual({ mended: 0 })
})

test('a queue that first appears in a rolled-back transaction does not confuse the next', async () => {
  database.exec('BEGIN')
  enqueueSync('a')
  database.exec('ROLLBACK')
  const other = { tenant: 'acme', queue: 'other' }
  expect(await storage.queue.enqueue(other, [task('x')])).toEqual(['accepted'])
  expect(enqueueSync('a')).toEqual(['accepted'])
  expect((await storage.queue.counts(ref)).pending).toBe(1)
  expect((await storage.queue.counts(other)).pending).toBe(1)
})

test('outside of any transaction it commits by itself', async () => {
  expect(enqueueSync('a', 'a')).toEqual(['accepted', 'duplicate'])
  expect(database.inTransaction).toBe(false)
  expect(await states('a')).toEqual(['pending'])
})

test('what we write ourselves waits for the end of the transaction, and does not join it', async () => {
  database.exec('BEGIN IMMEDIATE')
  database.prepare('INSERT INTO users VALUES (?)').run('ada')
  const enqueued = storage.queue.enqueue(ref, [task('mine')])
  const counted = storage.queue.counts(ref)
  for (let turns = 0; turns < 5; turns++) await turn()
  expect(database.prepare('SELECT count(*) FROM neotask_tasks').pluck().get()).toBe(0)
  database.exec('ROLLBACK')
  expect(await enqueued).toEqual(['accepted'])
  await counted
  expect(await states('mine')).toEqual(['pending'])
  expect(database.prepare('SELECT count(*) FROM users').pluck().get()).toBe(0)
})

test('listeners hear of it after the commit only', async () => {
  const heard: string[] = []
  await storage.notices.subscribe('head:acme/mail', (message) => heard.push(message))
  database.exec('BEGIN')
  enqueueSync('a')
  for (let turns = 0; turns < 5; turns++) await turn()
  expect(heard).toEqual([])
  database.exec('COMMIT')
  await new Promise((resolve) => setTimeout(resolve, 20))
  expect(heard).toEqual(['2'])
})

test('his version, his time-out and his way of reading integers stay as they are', async () => {
  database.defaultSafeIntegers(true)
  const timeout = database.pragma('busy_timeout', { simple: true })
  await storage.queue.enqueue(ref, [task('a')])
  expect((await storage.queue.get(ref, ['a']))[0]?.priority).toBe(2)
  expect(database.pragma('busy_timeout', { simple: true })).toBe(timeout)
  expect(Number(database.pragma('user_version', { simple: true }))).toBe(42)
  await storage.close()
  expect(database.open).toBe(true)
})

test('an iterator that he has open is waited for', async () => {
  for (const name of ['ada', 'bob']) database.prepare('INSERT INTO users VALUES (?)').run(name)
  const iterator = database.prepare('SELECT name FROM users').iterate()
  iterator.next()
  const enqueued = storage.queue.enqueue(ref, [task('a')])
  await turn()
  iterator.return?.()
  expect(await enqueued).toEqual(['accepted'])
})

test('his database may be closed by him, and that is an error of ours only when we are asked', async () => {
  database.close()
  await expect(Promise.resolve().then(() => storage.queue.counts(ref))).rejects.toThrow()
  await storage.close()
  database = new Sqlite(join(folder, 'app.db'))
})
