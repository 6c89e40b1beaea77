/**
 * The claim: which tasks a session takes, from ready and from the lanes of the kinds that it serves, smallest score
 * first. What it may not take it puts aside on the way, so that the next claim does not meet it again.
 */
import { encodedSize, encodedSizeAtMost } from './codec.js'
import type { Lease } from './memory-lease.js'
import { laneOf, type MemoryQueue } from './memory-queue.js'
import type { Line } from './memory-structures.js'
import { isDoomed, scoreOf, told, type Task } from './memory-task.js'
import { claimedOf } from './memory-views.js'
import type { Claimed, Encoded } from './storage.js'

/** Tasks that one claim puts aside or ends on its way. */
const ASIDE_LIMIT = 1_000
/** Bytes of a claim, unless it says how many. */
export const CLAIM_BYTES: number = 1024 * 1024

export interface ClaimLimits {
  readonly want: number
  readonly wantBytes?: number | undefined
  readonly moreUrgentThan?: number | undefined
}

/** @param issue gives the claim's token; called once, when there is something to claim */
export function claim(
  queue: MemoryQueue,
  lease: Lease,
  limits: ClaimLimits,
  now: number,
  issue: () => number,
): Claimed[] {
  const claimed: Claimed[] = []
  const { want } = limits
  const bound = limits.moreUrgentThan === undefined ? Infinity : scoreOf(limits.moreUrgentThan, 0)
  const search = new Search(queue, lease, now)
  const bytes = new Bytes(limits.wantBytes ?? CLAIM_BYTES)
  let isShort = false
  while (claimed.length < want) {
    const line = search.next()
    if (line === undefined) {
      isShort = true
      break
    }
    const task = line.head() as Task
    if (task.score >= bound) break
    const payload = told(task.payload)
    if (!bytes.fit(payload, claimed) && claimed.length > 0) break
    line.take(task)
    const waited = Math.max(0, now - task.since)
    lease.grant(task, claimed.length === 0 ? issue() : lease.token, now)
    claimed.push(claimedOf(queue, task, payload, waited))
  }
  // Among the idle only when there is nothing left for it: what a bound kept back would not wait for a wake-up.
  if (isShort && !search.isExhausted) queue.wakeUps.idle.add(lease)
  else queue.wakeUps.idle.delete(lease)
  return claimed
}

/** Adds up what payloads take, and counts their characters one by one only when they may take too much. */
class Bytes {
  readonly #limit: number
  #atMost = 0
  #counted: number | undefined

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Whether there is room for one more. @param before all that had room */
  fit(payload: Encoded, before: readonly Claimed[]): boolean {
    this.#atMost += encodedSizeAtMost(payload)
    if (this.#atMost <= this.#limit) return true
    this.#counted ??= before.reduce((sum, claimed) => sum + encodedSize(claimed.payload), 0)
    this.#counted += encodedSize(payload)
    return this.#counted <= this.#limit
  }
}

/** Finds the line whose head is the most urgent task that the session may run. */
export class Search {
  readonly #queue: MemoryQueue
  readonly #lease: Lease
  readonly #now: number
  #left = ASIDE_LIMIT

  constructor(queue: MemoryQueue, lease: Lease, now: number) {
    this.#queue = queue
    this.#lease = lease
    this.#now = now
  }

  /** Whether it gave up at its bound, so that there may be more. */
  get isExhausted(): boolean {
    return this.#left <= 0
  }

  next(): Line | undefined {
    while (this.#left > 0) {
      const line = this.#first()
      const task = line.head()
      if (task === undefined) return undefined
      if (this.#mayRun(line, task)) return line
      this.#left--
    }
    return undefined
  }

  /** The line with the smallest head among ready and the lanes of the kinds served. */
  #first(): Line {
    const { ready, lanes } = this.#queue
    let first = ready
    if (lanes.size === 0) return first
    let score = ready.head()?.score ?? Infinity
    for (const kind of this.#lease.kinds) {
      const lane = lanes.get(kindLane(kind))
      const head = lane?.head()
      if (lane === undefined || head === undefined || head.score > score) continue
      first = lane
      score = head.score
    }
    return first
  }

  /** Whether the session may run the head of the line now. If not, the head is gone from there afterwards. */
  #mayRun(line: Line, task: Task): boolean {
    const rare = task.rare
    if (rare !== undefined) {
      if (isDoomed(rare)) {
        this.#queue.endByGroup(task, this.#now)
        return false
      }
      if (rare.deadline !== undefined && rare.deadline <= this.#now) {
        this.#queue.end(task, 'cancelled', 'TASK_EXPIRED', this.#now)
        return false
      }
      if (rare.group?.paused === true && !rare.exempt) {
        line.take(task)
        this.#queue.lane(laneOf(rare.group)).enter(task)
        return false
      }
    }
    if (this.#lease.kinds.has(task.kind)) return true
    line.take(task)
    this.#queue.lane(kindLane(task.kind)).enter(task)
    // It may have become ready in this very step, and somebody else waits for its kind.
    this.#queue.wakeUps.wake(1, task.kind)
    return false
  }
}

const kindLane = (kind: string): string => `kind:${kind}`
