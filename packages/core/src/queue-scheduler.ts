/**
 * Between the storage and the slots: decides how many tasks to ask for, keeps those that were claimed ahead in a
 * local priority queue, and starts them as slots turn free.
 *
 * Strict priority holds although tasks are claimed ahead: when something more urgent becomes ready while the buffer
 * is full, it is claimed too and the least urgent buffered tasks go back to their old places; until the answer is
 * here, nothing less urgent starts.
 *
 * A task that came back from a lost node is called only after its start mark is written, so that a handler that
 * kills its process is found out; and those that had started there run one at a time, so that none of them is
 * blamed for another.
 */
import { setImmediate, type Clock } from './clock.js'
import type { Prefetch } from './prefetch.js'
import { PriorityQueue } from './priority-queue.js'
import type { Demand } from './session.js'
import type { Claimed, Mark, Taken } from './storage.js'

export interface QueueSchedulerHost {
  readonly clock: Clock
  /** Attempts that may be begun now. */
  free(): number
  /** Whether no handler may be called now. @param now monotonic ms, if it is known */
  fenced(now?: number): boolean
  /**
   * Calls the handler.
   *
   * @param now monotonic ms
   * @param arrival the task's place in line, for {@link QueueScheduler.putBack}
   */
  run(task: Claimed, marked: boolean, now: number, arrival: number): void
  /** Gives a task back to its old place. */
  release(task: Claimed): void
  /** There is demand. */
  poke(): void
  /** A task waits for its start mark. */
  mark(): void
}

/** Handlers are started for this long, in ms, before the event loop gets its turn. */
const TURN = 10
/**
 * Where the storage works elsewhere, so many handlers are started before the event loop gets its turn: then the next call
 * goes out, and the storage works while the rest of what was claimed is run here.
 */
const SHARE = 50
/** Above any number of tasks that one node claims in its life. */
const PER_PRIORITY = 2 ** 43

/** A task that has left the buffer, and its place in line. */
interface Waiting {
  readonly task: Claimed
  readonly arrival: number
}

export class QueueScheduler {
  readonly #host: QueueSchedulerHost
  readonly #prefetch: Prefetch
  /** Handlers that are started in one turn. */
  readonly #share: number
  readonly #buffer = new PriorityQueue<Claimed>()
  /** Slots kept for tasks whose start mark is being written. */
  readonly #awaiting = new Map<string, Waiting>()
  /** Tasks that had started on a lost node; the first runs (or waits for its mark), the others wait for it. */
  #solo: Waiting[] = []
  #soloRuns: Claimed | undefined
  #arrivals = 0
  /** The place in line of the task that was taken out last. */
  #arrival = 0
  #open = true
  #pausedHere = false
  #pumping = false
  #resting = false
  #turnStart = -1
  #startedInTurn = 0
  /** The priority of something ready that is more urgent than all that is buffered. */
  #urgent: number | undefined
  #lastStart: number

  /** @param isApart whether the storage works in another process */
  constructor(prefetch: Prefetch, host: QueueSchedulerHost, isApart: boolean = false) {
    this.#prefetch = prefetch
    this.#host = host
    this.#share = isApart ? SHARE : Infinity
    this.#lastStart = host.clock.monotonic()
  }

  /** Tasks that are held and have not started. */
  get buffered(): number {
    return this.#buffer.size + this.#awaiting.size + this.#solo.length
  }

  /** What this node would take now. */
  demand(): Demand {
    return this.#demand(undefined)
  }

  #demand(now: number | undefined): Demand {
    if (!this.#open || this.#pausedHere) return NOTHING
    const free = this.#free
    const waiting = this.#buffer.size + this.#solo.length
    const want = this.#prefetch.demand(free, waiting, now ?? this.#host.clock.monotonic())
    if (want > 0) return { want, free: Math.max(0, free - waiting) }
    if (this.#urgent === undefined || this.#buffer.size === 0) return NOTHING
    return { want: this.#buffer.size, moreUrgentThan: this.#worst }
  }

  /** Tasks that this node holds from now on. */
  add(entries: readonly Claimed[]): void {
    this.#prefetch.claimed(this.#host.clock.monotonic())
    if (this.#buffer.size === 0) this.#lastStart = this.#host.clock.monotonic()
    for (const entry of entries) {
      if (!this.#open || this.#pausedHere) this.#host.release(entry)
      else this.#buffer.push(entry.priority * PER_PRIORITY + this.#arrivals++, entry)
    }
    this.#giveBackSurplus()
    this.pump()
  }

  /**
   * A task was run, has not begun, and is to wait in its old place. Starts nothing: {@link freed} does, once all that
   * come back together are here.
   */
  putBack(task: Claimed, arrival: number): void {
    if (!this.#open || this.#pausedHere) {
      this.#host.release(task)
      return
    }
    if (this.#buffer.size === 0) this.#lastStart = this.#host.clock.monotonic()
    this.#buffer.push(task.priority * PER_PRIORITY + arrival, task)
    this.#giveBackSurplus()
  }

  /** Something of this priority became ready. */
  urgent(priority: number): void {
    if (this.#buffer.size === 0 || priority >= this.#worst) return
    if (this.#urgent === undefined || priority < this.#urgent) this.#urgent = priority
  }

  /** What the storage says is the most urgent of the rest, and whether the queue is paused. */
  observed(head: number | undefined, paused: boolean): void {
    this.#urgent = undefined
    if (paused) this.giveBack()
    else if (head !== undefined) this.urgent(head)
    this.pump()
  }

  /** Handlers may be called again. */
  unfenced(): void {
    this.#urgent = undefined
    this.pump()
  }

  /** A call failed: nothing urgent is on its way. */
  troubled(): void {
    this.#urgent = undefined
    this.pump()
  }

  /** A slot is free. @param now monotonic ms */
  freed(now: number): void {
    this.pump(now)
  }

  /** This attempt ended; one that the task had here before says nothing of the one that runs now. */
  ended(task: Claimed): void {
    if (this.#soloRuns === task) this.#soloRuns = undefined
  }

  /** Drops what the storage took away. */
  taken(entries: readonly Taken[]): void {
    if (this.buffered === 0) return
    const tokens = new Map(entries.map(({ id, token }) => [id, token]))
    const stays = (task: Claimed): boolean => task.token > (tokens.get(task.id) ?? -1)
    this.#buffer.compact(stays)
    this.#solo = this.#solo.filter(({ task }) => stays(task))
    for (const { task } of [...this.#awaiting.values()]) {
      if (stays(task)) continue
      this.#awaiting.delete(task.id)
      this.ended(task)
    }
    this.pump()
  }

  /** Drops everything: it belongs to others now. */
  clear(): void {
    this.#buffer.compact(() => false)
    this.#solo = []
    this.#awaiting.clear()
    this.#soloRuns = undefined
    this.#urgent = undefined
  }

  /** Marks of the tasks that wait for theirs. */
  marks(): Mark[] {
    return [...this.#awaiting.values()].map(({ task: { id, token } }) => ({ id, token }))
  }

  /** These marks are written: those tasks may start. */
  marked(marks: readonly Mark[]): void {
    if (this.#awaiting.size === 0 || this.#host.fenced()) return
    for (const { id, token } of marks) {
      const waiting = this.#awaiting.get(id)
      if (waiting?.task.token !== token) continue
      this.#awaiting.delete(id)
      this.#host.run(waiting.task, true, this.#host.clock.monotonic(), waiting.arrival)
    }
  }

  holding(): string[] {
    const ids = [...this.#awaiting.keys(), ...this.#solo.map(({ task }) => task.id)]
    for (const [, task] of this.#buffer.entries()) ids.push(task.id)
    return ids
  }

  /** Called with each look for work: gives the buffer back when slots do not turn over. */
  tick(): void {
    if (this.#buffer.size + this.#solo.length === 0) return
    if (this.#host.clock.monotonic() - this.#lastStart < this.#prefetch.patience) return
    this.#prefetch.stall()
    this.#giveBackSurplus()
    for (const { task } of this.#solo.splice(0)) this.#host.release(task)
  }

  pauseHere(paused: boolean): void {
    this.#pausedHere = paused
    if (paused) this.giveBack()
    else this.#host.poke()
  }

  /** Claims no more, and gives back what has not started. */
  stop(): void {
    this.#open = false
    this.giveBack()
  }

  /** Gives back everything that has not started. */
  giveBack(): void {
    for (const { task } of [...this.#awaiting.values(), ...this.#solo]) this.#host.release(task)
    if (this.#soloRuns !== undefined && this.#awaiting.has(this.#soloRuns.id)) this.#soloRuns = undefined
    this.#awaiting.clear()
    this.#solo = []
    for (let task = this.#buffer.pop(); task !== undefined; task = this.#buffer.pop())
      this.#host.release(task)
  }

  /** Starts what fits into the free slots. @param now monotonic ms, if it is known */
  pump(now?: number): void {
    if (this.#pumping || this.#resting || this.#host.fenced(now)) return
    this.#pumping = true
    let time = now
    try {
      while (this.#mayStart()) {
        time ??= this.#host.clock.monotonic()
        if (this.#turnIsOver(time)) break
        const task = this.#next()
        if (task === undefined) break
        this.#start(task, time)
        // The handler may have taken its time.
        time = undefined
      }
    } finally {
      this.#pumping = false
    }
    if (this.#demand(now).want > 0) this.#host.poke()
  }

  get #free(): number {
    return this.#host.free() - this.#awaiting.size
  }

  get #worst(): number {
    return Math.floor((this.#buffer.worstKey() ?? Infinity) / PER_PRIORITY)
  }

  #mayStart(): boolean {
    return this.#free > 0 && this.#buffer.size + this.#solo.length > 0 && this.#open
  }

  /** The next task that may start: the front of the buffer, or a lone one whose turn it is. */
  #next(): Claimed | undefined {
    const solo = this.#soloRuns === undefined ? this.#solo.shift() : undefined
    if (solo !== undefined) {
      this.#arrival = solo.arrival
      return solo.task
    }
    while (this.#buffer.size > 0) {
      const key = this.#buffer.peekKey() as number
      // The key is the priority first: something more urgent is being fetched, so nothing less urgent starts.
      if (this.#urgent !== undefined && key >= this.#urgent * PER_PRIORITY + PER_PRIORITY) return undefined
      const task = this.#buffer.pop() as Claimed
      this.#arrival = key - task.priority * PER_PRIORITY
      if (task.reclaims === 0 || this.#soloRuns === undefined) return task
      this.#solo.push({ task, arrival: this.#arrival })
    }
    return undefined
  }

  #start(task: Claimed, now: number): void {
    this.#lastStart = this.#turnStart
    if (task.reclaims > 0) this.#soloRuns = task
    if (task.reclaims === 0 && !task.probation) {
      this.#host.run(task, false, now, this.#arrival)
      return
    }
    this.#awaiting.set(task.id, { task, arrival: this.#arrival })
    this.#host.mark()
  }

  /**
   * Handlers that never wait would keep the event loop for as long as the buffer lasts, so after a while, or after
   * so many, the rest is left for the next turn.
   */
  #turnIsOver(now: number): boolean {
    if (this.#turnStart < 0) {
      this.#turnStart = now
      this.#startedInTurn = 0
      setImmediate(() => {
        this.#turnStart = -1
        if (!this.#resting) return
        this.#resting = false
        this.pump()
      })
    }
    this.#resting = now - this.#turnStart > TURN || this.#startedInTurn++ >= this.#share
    return this.#resting
  }

  /** Keeps the buffer within its bound, at the cost of the least urgent. */
  #giveBackSurplus(): void {
    const most = Math.max(0, this.#free) + this.#prefetch.target
    for (let surplus = this.#buffer.size - most; surplus > 0; surplus--) {
      this.#host.release(this.#buffer.popWorst() as Claimed)
    }
  }
}

const NOTHING: Demand = { want: 0 }
