/**
 * A node for the test of clocks: it works for one queue, and submits to that and to another one. Times that it tells are of
 * the machine's monotonic clock, in ms, which all processes share whatever they believe the date to be.
 *
 * `node clock-worker.js <Redis URL> <namespace> <queue> <other queue> <delay>`; it tells a {@link Word} a line. When its input
 * says `submit` it does so, and when that ends it closes.
 */
import { systemClock, TaskPool } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

export type Word =
  | { type: 'ready'; now: number }
  | { type: 'warning'; code: string }
  /** The submit was called and was acknowledged at these times. */
  | { type: 'submitted'; queue: string; id: string; before: number; after: number }

/** What a task answers. */
export interface Ran {
  at: number
  pid: number
  /** How often this process has begun that task. */
  times: number
  aborted: boolean
}

/** ms. */
const SESSION = 3_000

const [url = '', namespace = '', queue = '', other = '', delay = ''] = process.argv.slice(2)
const now = (): number => Number(process.hrtime.bigint()) / 1e6
const tell = (word: Word): void => void process.stdout.write(`${JSON.stringify(word)}\n`)
process.on('warning', (warning) =>
  tell({ type: 'warning', code: (warning as { code?: string }).code ?? warning.message }),
)

const storage = redisStorage({ url, namespace })
await storage.open()
const begun = new Map<string, number>()
const pool = new TaskPool({
  storage,
  queue,
  sessionTtl: SESSION,
  executor: async (what: string, ctx): Promise<Ran> => {
    const at = now()
    const times = (begun.get(ctx.id) ?? 0) + 1
    begun.set(ctx.id, times)
    // Longer than a session lives of which nothing is heard.
    if (what === 'long') await sleep(SESSION * 1.5)
    return { at, pid: process.pid, times, aborted: ctx.signal.aborted }
  },
})
const others = new TaskPool<string>({ storage, queue: other, concurrency: 0 })

createInterface({ input: process.stdin })
  .on('line', () => {
    for (const [name, target] of [
      [queue, pool],
      [other, others],
    ] as const) {
      const before = now()
      void target
        .submit('delayed', { delay: Number(delay) })
        .then((id) => tell({ type: 'submitted', queue: name, id, before, after: now() }))
    }
  })
  .on('close', () => void Promise.all([pool.close(), others.close()]).then(() => storage.close()))
await pool.start()
tell({ type: 'ready', now: systemClock.now() })
