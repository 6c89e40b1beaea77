/**
 * A worker for the tests that kill processes: runs tasks from one storage and writes to a log what it does, a line
 * for each event, so that a test can check the storage against a witness that the storage knows nothing of.
 *
 * `node kill-worker.js <SQLite file or redis:namespace:target> <log> <concurrency> <sessionTtl>`; it prints `ready`, and
 * when its input ends it closes and prints a {@link Usage}.
 */
import { openStorage, TaskPool, type Logger, type Storage } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { once } from 'node:events'
import { openSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** What a task is asked for. */
export interface Work {
  n: number
  /** How long it takes, in ms; with 0 it is done at once. */
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

/** What a worker took of the machine, in ms of CPU. */
export interface Usage {
  readonly cpu: number
}

const [database = '', log = '', concurrency = '8', sessionTtl = '1s'] = process.argv.slice(2)
const file = openSync(log, 'a')
let lines = ''
const note = (event: WitnessEvent, id: string, token: number): void => {
  if (lines === '') process.nextTick(write)
  lines += `${event} ${id} ${token} ${process.pid}\n`
}

/**
 * What one callback of the loop brought about, before the next one, which may tell the storage of it. Appended with one
 * write: lines of several processes do not mix, and those written survive a kill.
 */
function write(): void {
  writeSync(file, lines)
  lines = ''
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

const storage = await open()
const pool = new TaskPool({
  storage,
  concurrency: Number(concurrency),
  sessionTtl,
  // A task that happens to run at several kills is not to blame for them.
  maxReclaims: 1000,
  retention: { success: { count: 1e6 } },
  logger,
  executor: async ({ n, ms }: Work, ctx): Promise<Done> => {
    note('start', ctx.id, ctx.token)
    tokens.set(ctx.id, ctx.token)
    ctx.signal.addEventListener('abort', () => note('lost', ctx.id, ctx.token))
    if (ms > 0) await sleep(ms)
    note('end', ctx.id, ctx.token)
    return { square: n * n, pid: process.pid }
  },
})
pool.on('task.completed', ({ id }) => note('accepted', id, tokens.get(id) ?? 0))
await pool.start()
process.stdout.write('ready\n')
process.stdin.resume()
await once(process.stdin, 'end')
await pool.close()
await storage.close()
const { user, system } = process.cpuUsage()
process.stdout.write(`${JSON.stringify({ cpu: (user + system) / 1000 } satisfies Usage)}\n`)
