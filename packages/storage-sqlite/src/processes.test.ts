/** Several processes on one file. */
import { TaskPool } from '@neotask/core'
import Sqlite from 'better-sqlite3'
import { execFile, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { sqliteStorage } from './index.js'

const NODE = fileURLToPath(new URL('../test/node.mjs', import.meta.url))
const ref = { tenant: 'acme', queue: 'mail' }
const task = (id: string) => ({ id, kind: '', payload: 'p', codec: 'json', priority: 2 })

let folder: string
let path: string

beforeEach(() => {
  if (!existsSync(new URL('../dist/index.js', import.meta.url)))
    throw new Error('build the package first: npm run build')
  folder = mkdtempSync(join(tmpdir(), 'neotask-processes-'))
  path = join(folder, 'tasks.db')
})
afterEach(() => rmSync(folder, { recursive: true }))

/** What a node in another process says until it ends. */
function run(...args: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [NODE, path, ...args], { maxBuffer: 1e8 }, (error, stdout) => {
      if (error && error.signal !== 'SIGKILL') reject(new Error('the process failed', { cause: error }))
      else resolve(stdout)
    })
  })
}

test(
  'what two processes claim at once never overlaps, and nothing is left',
  { timeout: 60_000 },
  async () => {
    const storage = sqliteStorage(path)
    await storage.open()
    const ids = Array.from({ length: 1000 }, (_, index) => `t${index}`)
    await storage.queue.enqueue(ref, ids.map(task))
    const outputs = await Promise.all(['one', 'two', 'three'].map((name) => run('drain', name)))
    const got = outputs.map((output) => JSON.parse(output) as string[])
    expect(got.flat().sort()).toEqual([...ids].sort())
    expect(got.filter((some) => some.length > 0).length).toBeGreaterThan(1)
    const counts = await storage.queue.counts(ref)
    expect([counts.success, counts.pending, counts.running]).toEqual([1000, 0, 0])
    expect(await storage.upkeep.reconcile(ref, 100)).toEqual({ mended: 0 })
    await storage.close()
  },
)

test('what several processes enqueue while others claim is all run once', { timeout: 60_000 }, async () => {
  const outputs = await Promise.all([
    run('fill', 'a', '200'),
    run('fill', 'b', '200'),
    run('drain', 'one'),
    run('drain', 'two'),
  ])
  const rest = await run('drain', 'three')
  const got = [...outputs.slice(2), rest].flatMap((output) => JSON.parse(output) as string[])
  expect(new Set(got).size).toBe(400)
  expect(got.length).toBe(400)
})

test('an idle process is woken by the commit of another within 200 ms', { timeout: 60_000 }, async () => {
  const storage = sqliteStorage(path)
  await storage.open()
  const child = spawn(process.execPath, [NODE, path, 'listen', 'sleeper'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines: string[] = []
  child.stdout.setEncoding('utf8').on('data', (text: string) => lines.push(...text.trim().split('\n')))
  const until = async (start: string): Promise<string> => {
    for (;;) {
      const line = lines.find((known) => known.startsWith(start))
      if (line !== undefined) return line
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
  }
  await until('ready')
  // Long enough for the poll to have become slow: the watch on the log has to do it.
  await new Promise((resolve) => setTimeout(resolve, 3000))
  const before = Date.now()
  await storage.queue.enqueue(ref, [task('a')])
  const at = Number((await until('woken')).split(' ')[1])
  expect(at - before).toBeLessThan(200)
  await storage.notices.publish('hello', 'there')
  expect(await until('hello')).toBe('hello there')
  child.stdin.end()
  await new Promise((resolve) => child.once('exit', resolve))
  await storage.close()
})

test(
  'a process that dies in a transaction leaves what was committed, and no lock',
  { timeout: 60_000 },
  async () => {
    await run('die', 'victim')
    const storage = sqliteStorage(path)
    await storage.open()
    expect((await storage.queue.counts(ref)).pending).toBe(1)
    expect((await storage.queue.get(ref, ['kept']))[0]?.state).toBe('pending')
    expect(await storage.queue.enqueue(ref, [task('more')])).toEqual(['accepted'])
    await storage.close()
  },
)

test('a call that meets a long transaction says so at once when its caller repeats it, and waits otherwise', async () => {
  const storage = sqliteStorage(path)
  await storage.open()
  const other = new Sqlite(path)
  other.exec('BEGIN IMMEDIATE')
  const start = performance.now()
  await expect(storage.queue.enqueue(ref, [task('a')])).rejects.toMatchObject({
    code: 'STORAGE_UNAVAILABLE',
    retryable: true,
  })
  expect(performance.now() - start).toBeLessThan(500)
  const paused = storage.queue.pause(ref, true)
  await new Promise((resolve) => setTimeout(resolve, 100))
  other.exec('COMMIT')
  other.close()
  await paused
  expect((await storage.queue.counts(ref)).paused).toBe(true)
  await storage.close()
})

test('a node that meets a transaction of less than a second waits for it, and tells nobody of trouble', async () => {
  const storage = sqliteStorage(path)
  let begun = (): void => {}
  const isRunning = new Promise<void>((resolve) => (begun = resolve))
  let end = (): void => {}
  const held = new Promise<void>((resolve) => (end = resolve))
  const pool = new TaskPool({
    storage,
    executor: async (n: number) => {
      begun()
      await held
      return n + 1
    },
  })
  const errors: unknown[] = []
  pool.on('pool.error', ({ error }) => errors.push(error))
  const id = await pool.submit(1)
  await isRunning
  const other = new Sqlite(path)
  other.exec('BEGIN IMMEDIATE')
  // Its end is to be written now.
  end()
  await new Promise((resolve) => setTimeout(resolve, 500))
  other.exec('COMMIT')
  other.close()
  expect(await pool.waitForResult(id)).toBe(2)
  expect(errors).toEqual([])
  await pool.close()
  await storage.close()
})
