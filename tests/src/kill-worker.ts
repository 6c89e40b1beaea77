/**
 * A worker for the tests that kill processes: runs tasks from one storage and writes to a log what it does, a line
 * for each event, so that a test can check the storage against a witness that the storage knows nothing of.
 *
 * `node kill-worker.js <SQLite file or redis:namespace:target> <log> <concurrency>`
 */
import { openStorage, TaskPool, type Logger, type Storage } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { openSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** What a task is asked for. */
export interface Work {
  n: number
  /** How long it takes, in ms. */
  ms: number
}

/** What came of it, and who did it. */
export interface Done {
  square: number
  pid: number
}

/**
 * - `start`: a handler is called
 * - `end`: it is about to return; whether that counts is not known yet
 * - `lost`: it was told that the task may belong to somebody else now
 * - `accepted`, `refused`: the storage has answered its end
 */
export type WitnessEvent = 'start' | 'end' | 'lost' | 'accepted' | 'refused'

const [database = '', log = '', concurrency = '8'] = process.argv.slice(2)
// Appended with one write each: lines of several processes do not mix, and those written survive a kill.
const file = openSync(log, 'a')
const note = (event: WitnessEvent, id: string, token: number): void => {
  writeSync(file, `${event} ${id} ${token} ${process.pid}\n`)
}

const tokens = new Map<string, number>()
const silent = (): void => {}
const logger: Logger = {
  debug(fields) {
    const { task, token } = fields as { task?: string; token?: number }
    if (task !== undefined && token !== undefined) note('refused', task, token)
  },
  info: silent,
  warn: silent,
  error: silent,
}

async function open(): Promise<Storage> {
  const [, namespace, url] = /^redis:([^:]+):(.+)$/.exec(database) ?? []
  if (url === undefined) return openStorage(`sqlite:${database}`)
  const storage = redisStorage({ url, namespace })
  await storage.open()
  return storage
}

const pool = new TaskPool({
  storage: await open(),
  concurrency: Number(concurrency),
  sessionTtl: '1s',
  // A task that happens to run at several kills is not to blame for them.
  maxReclaims: 1000,
  logger,
  executor: async ({ n, ms }: Work, ctx): Promise<Done> => {
    note('start', ctx.id, ctx.token)
    tokens.set(ctx.id, ctx.token)
    ctx.signal.addEventListener('abort', () => note('lost', ctx.id, ctx.token))
    await sleep(ms)
    note('end', ctx.id, ctx.token)
    return { square: n * n, pid: process.pid }
  },
})
pool.on('task.completed', ({ id }) => note('accepted', id, tokens.get(id) ?? 0))
await pool.start()
process.stdout.write('ready\n')
