/**
 * The wake-ups of a queue. A step notes what it makes ready; its end wakes idle sessions that can take it, and tells
 * the sessions of the queue when its head has become more urgent than before.
 */
import type { Lease } from './memory-lease.js'
import type { MemoryNotices } from './memory-notices.js'
import type { Line } from './memory-structures.js'
import type { Task } from './memory-task.js'
import { headChannel, wakeChannel, type QueueRef } from './storage.js'

/** Sessions that one step wakes for a kind. */
const WAKE_LIMIT = 16

export class WakeUps {
  /** Sessions whose last claim came back short. */
  readonly idle: Set<Lease> = new Set<Lease>()
  readonly #ref: QueueRef
  readonly #ready: Line
  readonly #notices: MemoryNotices

  // Of the present step.
  #fresh = 0
  #kinds: string[] = []
  #headBefore = Infinity
  /** The most urgent priority that became ready. */
  #urgent = Infinity
  #sooner: string | undefined

  constructor(ref: QueueRef, ready: Line, notices: MemoryNotices) {
    this.#ref = ref
    this.#ready = ready
    this.#notices = notices
  }

  /** Called before the task enters ready. */
  noteReady(task: Task): void {
    const { priority } = task
    if (this.#fresh++ === 0) {
      this.#headBefore = this.#headPriority()
      this.#urgent = priority
    } else if (priority < this.#urgent) this.#urgent = priority
    if (this.idle.size > 0 && !this.#kinds.includes(task.kind)) this.#kinds.push(task.kind)
  }

  /** The task is due before anything that an idle session knows of: one of them has to learn the time. */
  noteSooner(task: Task): void {
    this.#sooner = task.kind
  }

  /** Tells the session that there is work, or that something was taken from it. */
  call(lease: Lease): void {
    this.#notices.send(wakeChannel(lease.id), '')
  }

  /** Wakes idle sessions, those that serve the kind when one is named; they are idle no more. */
  wake(limit: number, kind?: string): void {
    let left = Math.min(limit, WAKE_LIMIT)
    for (const lease of this.idle) {
      if (kind !== undefined && !lease.kinds.has(kind)) continue
      this.idle.delete(lease)
      this.call(lease)
      if (--left === 0) return
    }
  }

  /** The end of a step. */
  conclude(paused: boolean): void {
    if (this.#fresh > 0) {
      if (!paused) this.#announce(Math.min(this.#fresh, this.#ready.size))
      this.#fresh = 0
      this.#kinds = []
    }
    if (this.#sooner === undefined) return
    this.wake(1, this.#sooner)
    this.#sooner = undefined
  }

  #announce(count: number): void {
    if (count === 0) return
    // As many for each kind: one session may not be able to take what another is waiting for.
    for (const kind of this.#kinds) this.wake(count, kind)
    if (this.#urgent >= this.#headBefore) return
    // It may have been claimed in this very step.
    const head = this.#headPriority()
    if (head < this.#headBefore) this.#notices.send(headChannel(this.#ref), String(head))
  }

  #headPriority(): number {
    return this.#ready.head()?.priority ?? Infinity
  }
}
