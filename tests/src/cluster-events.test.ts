/** Events of other processes, on the storages that processes share: a worker works, this process sees what it does. */
import { type ClusterEvent, openStorage, type Storage, TaskPool } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Done, Work } from './kill-worker.js'
import { redisUrl } from './redis-server.js'
import { until } from './storages.js'

const program = join(import.meta.dirname, '..', 'dist', 'kill-worker.js')
/** ms within which an event of another process is here. */
const SOON = 2000

let folder: string
const ends: (() => Promise<unknown>)[] = []

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'neotask-events-'))
})

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
  await rm(folder, { recursive: true })
})

/** @returns the name of its node */
async function startWorker(database: string): Promise<string> {
  const args = [program, database, join(folder, 'log'), '1']
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  ends.push(async () => {
    child.kill('SIGKILL')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  })
  await once(child.stdout as NodeJS.ReadableStream, 'data')
  return `${hostname()}-${child.pid}`
}

async function open(name: string): Promise<{ storage: Storage; database: string }> {
  if (name === 'sqlite') {
    const database = join(folder, 'tasks.db')
    return { storage: await openStorage(`sqlite:${database}`), database }
  }
  const namespace = `test-${randomBytes(6).toString('hex')}`
  const url = await redisUrl()
  const storage = redisStorage({ url, namespace })
  await storage.open()
  return { storage, database: `redis:${namespace}:${url}` }
}

test.each(['sqlite', 'redis'])(
  '%s: come from processes that were there and from later ones',
  async (name) => {
    const { storage, database } = await open(name)
    ends.push(() => storage.close())
    const pool = new TaskPool<Work, Done>({ storage, concurrency: 0, node: 'web' })
    ends.push(() => pool.close())
    const seen: ClusterEvent[] = []
    const first = await startWorker(database)
    const stream = pool.events({ scope: 'cluster' })
    const reading = (async () => {
      for await (const event of stream) seen.push(event)
    })()

    const typesOf = (id: string, node: string): string[] =>
      seen
        .filter(({ event, node: at }) => at === node && 'id' in event && event.id === id)
        .map(({ type }) => type)
    const whatTheyTell = async (node: string): Promise<void> => {
      // What happens before a worker has learned that somebody listens is not told.
      const ids: string[] = []
      const isTold = (id: string): boolean =>
        typesOf(id, node).join() === 'task.started,task.completed' &&
        typesOf(id, 'web').join() === 'task.created'
      await until(
        `${node} tells of a task`,
        async () => {
          ids.push(await pool.submit({ n: 1, ms: 20 }))
          await new Promise((resolve) => setTimeout(resolve, 50))
          return ids.some(isTold)
        },
        SOON,
      )
    }
    await whatTheyTell(first)

    const second = await startWorker(database)
    await whatTheyTell(second)
    for (const { at, event } of seen) {
      expect(Math.abs(Date.now() - at)).toBeLessThan(60_000)
      expect(event).not.toHaveProperty('data')
      expect(event).not.toHaveProperty('result')
    }
    await pool.close()
    await reading
  },
)
