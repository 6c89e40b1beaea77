/** A process that works for a Redis storage and is frozen for longer than its session lives. */
import { TaskPool } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import type { Done, Work } from './kill-worker.js'
import { redisUrl } from './redis-server.js'
import { until } from './storages.js'
import { readWitness, type Execution } from './witness.js'

const program = join(import.meta.dirname, '..', 'dist', 'kill-worker.js')
const disposals: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const dispose of disposals.splice(0).reverse()) await dispose()
})

test('a worker on Redis that was frozen for longer than its session cannot finish what another has taken over', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'neotask-frozen-'))
  disposals.push(() => rm(folder, { recursive: true }))
  const log = join(folder, 'log')
  const namespace = `test-${randomBytes(6).toString('hex')}`
  const url = await redisUrl()
  const storage = redisStorage({ url, namespace })
  await storage.open()
  const producer = new TaskPool<Work, Done>({ storage, concurrency: 0 })
  disposals.push(
    () => storage.close(),
    () => producer.close(),
  )
  const startWorker = (): ChildProcess => {
    const worker = spawn(process.execPath, [program, `redis:${namespace}:${url}`, log, '1'], {
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    disposals.push(async () => {
      const ended = once(worker, 'exit')
      if (worker.kill('SIGKILL')) await ended
    })
    return worker
  }

  const frozen = startWorker()
  const id = await producer.submit({ n: 7, ms: 300 })
  const executions = (): Execution[] => (existsSync(log) ? (readWitness(log).get(id) ?? []) : [])
  await until('it runs', () => executions().length === 1, 20_000)
  frozen.kill('SIGSTOP')
  const other = startWorker()
  expect(await producer.waitForResult(id, { timeout: '20s' })).toEqual({ square: 49, pid: other.pid })
  const record = await producer.getTask(id)
  expect(record).toMatchObject({ state: 'success', attempts: 1 })

  frozen.kill('SIGCONT')
  await until('its end was refused', () => executions()[0]?.refused === true, 20_000)
  const [first, second] = executions()
  expect(executions()).toHaveLength(2)
  expect(first).toMatchObject({ pid: frozen.pid, ended: true, accepted: false, refused: true })
  expect(second).toMatchObject({ pid: other.pid, ended: true, accepted: true, refused: false })
  expect(await producer.getTask(id)).toEqual(record)
  expect(await producer.waitForResult(id)).toEqual({ square: 49, pid: other.pid })
}, 60_000)
