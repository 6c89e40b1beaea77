/** Many tasks that are due at one instant. */
import { Lateness } from './lateness.js'
import type { AddOptions } from './redis-peers.js'
import { IN_FLIGHT, inLanes, payload, type Payload } from './workload.js'

/** What takes tasks and runs them. */
export interface Queue {
  add(data: Payload, options?: AddOptions): unknown
  close(): Promise<void>
}

const COUNT = 10_000
const WARM_UP = 5000
/**
 * Workers wait that are warm: tasks without a time have passed through them.
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
  let at = NaN
  const queue = await open(({ i }) => lateness.ran(i, i < WARM_UP ? undefined : at))
  await inLanes(0, WARM_UP, IN_FLIGHT, (i) => queue.add(payload(i)))
  await lateness.warm
  at = Date.now() + lead
  await inLanes(WARM_UP, WARM_UP + COUNT, IN_FLIGHT, (i) => queue.add(payload(i), { at }))
  if (Date.now() > at - 500) throw new Error('the tasks were not stored in time')
  const p99 = await lateness.p99(at)
  await queue.close()
  return p99
}
