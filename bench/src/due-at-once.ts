/** Many tasks that are due at one instant. */
import { Lateness } from './lateness.js'
import type { AddOptions } from './redis-peers.js'
import { Deliveries, IN_FLIGHT, inLanes, payload, type Payload } from './workload.js'

/** What takes tasks and runs them. */
export interface Queue {
  add(data: Payload, options?: AddOptions): unknown
  close(): Promise<void>
}

const COUNT = 10_000
/** Tasks without a time. */
const COLD = 5000
const WARM_UP = COLD + COUNT

/**
 * Workers wait that are warm: tasks without a time have passed through them, then another burst of the same kind. When that was
 * less than 10 s ago, no record of a finished task is removed meanwhile.
 *
 * @param early ms by which a task may be early
 * @param lead ms in which they have to be stored
 * @returns ms by which they are late, p99
 */
export async function dueAtOnce(
  open: (handle: (data: Payload) => void) => Promise<Queue>,
  early: number,
  lead: number,
): Promise<number> {
  const lateness = new Lateness({ count: COUNT, warmUp: WARM_UP, early })
  const first = new Deliveries(COLD)
  let at: number | undefined
  const queue = await open(({ i }) => {
    lateness.ran(i, i < COLD ? undefined : at)
    if (i < COLD) first.count(i)
  })
  const burst = async (from: number): Promise<number> => {
    const instant = (at = Date.now() + lead)
    await inLanes(from, from + COUNT, IN_FLIGHT, (i) => queue.add(payload(i), { at: instant }))
    if (Date.now() > instant - 500) throw new Error('the tasks were not stored in time')
    return instant
  }
  await inLanes(0, COLD, IN_FLIGHT, (i) => queue.add(payload(i)))
  await first.complete
  await burst(COLD)
  await lateness.warm
  const instant = await burst(WARM_UP)
  const p99 = await lateness.p99(instant)
  await queue.close()
  return p99
}
