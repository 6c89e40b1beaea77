/**
 * A worker that measures itself: how long after its submit each task starts, and how late its event loop is. Submits
 * carry the wall time, which the processes of a machine share.
 *
 * `node timed-worker.js <database>`; when its input ends it closes and prints a {@link Timing}.
 */
import { TaskPool } from '@neotask/core'
import { once } from 'node:events'
import { monitorEventLoopDelay } from 'node:perf_hooks'

/** What a task carries: the wall time of its submit, in ms. */
export interface Stamped {
  at: number
}

/** In ms; `late` are values of 1 ms resolution, 1 ms when nothing is late. */
export interface Timing {
  readonly tasks: number
  readonly startP50: number
  readonly startP99: number
  readonly lateP99: number
  readonly lateMax: number
}

const [database = ''] = process.argv.slice(2)
const starts: number[] = []
const late = monitorEventLoopDelay({ resolution: 1 })
const pool = new TaskPool({
  storage: `sqlite:${database}`,
  executor: ({ at }: Stamped) => starts.push(Date.now() - at),
})
await pool.start()
late.enable()
process.stdout.write('ready\n')
process.stdin.resume()
await once(process.stdin, 'end')
late.disable()
await pool.close()
starts.sort((a, b) => a - b)
const share = (part: number): number => starts[Math.floor(starts.length * part)] ?? 0
const timing: Timing = {
  tasks: starts.length,
  startP50: share(0.5),
  startP99: share(0.99),
  lateP99: late.percentile(99) / 1e6,
  lateMax: late.max / 1e6,
}
process.stdout.write(`${JSON.stringify(timing)}\n`)
