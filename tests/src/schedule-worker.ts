/**
 * A node for the tests of schedules: it fires the schedules of a storage and runs their tasks, and appends to a log what it
 * does, a line of JSON for each event.
 *
 * `node schedule-worker.js <SQLite file or redis:namespace:target> <log> [holds]`; it prints `ready` when it has begun, and
 * closes when its input ends. With `holds` a task whose data says `hold` never ends.
 */
import { openStorage, TaskPool, type Storage } from '@neotask/core'
import { TaskScheduler } from '@neotask/scheduler'
import { redisStorage } from '@neotask/storage-redis'
import { once } from 'node:events'
import { openSync, writeSync } from 'node:fs'

/** The data of a task. */
export interface Work {
  readonly hold?: boolean
}

/**
 * - `started`: a handler is called
 * - `completed`: the storage has accepted its result
 * - `fired`, `skipped`: what this process did with a slot
 * - `error`: something failed outside of any call
 */
export type Line =
  | { what: 'started' | 'completed'; id: string; pid: number; at: number }
  | { what: 'fired' | 'skipped'; id: string; slot: number; pid: number; reason?: string }
  | { what: 'error'; message: string; pid: number }

const [database = '', log = '', holds = ''] = process.argv.slice(2)
const { pid } = process
const file = openSync(log, 'a')
let lines = ''
// What one callback of the loop brought about is one write, so that lines of several processes do not mix.
const note = (line: Line): void => {
  if (lines === '') {
    process.nextTick(() => {
      // In front stands the end of a line that somebody else's kill may have cut.
      writeSync(file, `\n${lines}`)
      lines = ''
    })
  }
  lines += `${JSON.stringify(line)}\n`
}

async function open(): Promise<Storage> {
  const [, namespace, url] = /^redis:([^:]+):(.+)$/.exec(database) ?? []
  if (url === undefined) return openStorage(`sqlite:${database}`)
  const storage = redisStorage({ url, namespace })
  await storage.open()
  return storage
}

/** ms of the machine's monotonic clock, which all processes share whatever they believe the date to be. */
const now = (): number => Number(process.hrtime.bigint()) / 1e6

const storage = await open()
const pool = new TaskPool({
  storage,
  concurrency: 50,
  sessionTtl: '1s',
  // A task that happens to run at several kills is not to blame for them.
  maxReclaims: 1000,
  executor: async (work: Work, ctx): Promise<void> => {
    note({ what: 'started', id: ctx.id, pid, at: now() })
    if (work.hold === true && holds === 'holds') await new Promise(() => {})
  },
})
pool.on('task.completed', ({ id }) => note({ what: 'completed', id, pid, at: now() }))
pool.on('schedule.fired', ({ id, slot }) => note({ what: 'fired', id, slot, pid }))
pool.on('schedule.skipped', ({ id, slot, reason }) => note({ what: 'skipped', id, slot, reason, pid }))
pool.on('pool.error', ({ error }) => note({ what: 'error', message: String(error), pid }))
new TaskScheduler(pool)
await pool.start()
process.stdout.write('ready\n')
process.stdin.resume()
await once(process.stdin, 'end')
await pool.close({ timeout: 0 })
await storage.close()
