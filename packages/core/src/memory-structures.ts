/**
 * The structures that hold tasks, and the orders by which they are found without a scan.
 *
 * Their names are those of the contract: ready and lanes ({@link Line}), due, need, the lease entries of a session
 * (`memory-lease.ts`), done-by-time. Each counts what it holds.
 */
import { NOWHERE, type Structure, type Task } from './memory-task.js'
import { PriorityQueue } from './priority-queue.js'
import type { RetentionRule } from './storage.js'
import type { FinalState, TaskState } from './task.js'

/** Dead entries that an order may always have. */
const SLACK = 512
/** Records younger than this stay: a repeat of the settlement may still come. */
const YOUNG_MS = 10_000
/** How long a record that is needed or watched is left alone before retention looks again. */
const LOOK_AGAIN_MS = 60_000

/**
 * Tasks by a number that they carry. Leaving costs nothing: an entry is alive while the task's number is still the
 * entry's, and dead ones go when they come up, or all at once when they outnumber the living.
 */
export class Order {
  readonly #queue = new PriorityQueue<Task>()
  readonly #keyOf: (task: Task) => number | undefined
  #alive = 0

  /** @param keyOf the task's number, `undefined` when it is not in this order (any more) */
  constructor(keyOf: (task: Task) => number | undefined) {
    this.#keyOf = keyOf
  }

  get size(): number {
    return this.#alive
  }

  /** Entries kept, dead ones too. */
  get entries(): number {
    return this.#queue.size
  }

  add(key: number, task: Task): void {
    this.#alive++
    this.#queue.push(key, task)
  }

  /** Tells that a task's number is no longer what it was added with. */
  dropped(): void {
    this.#alive--
    if (this.#queue.size > 2 * this.#alive + SLACK) this.#compact()
  }

  head(): Task | undefined {
    const queue = this.#queue
    for (let task = queue.peek(); task !== undefined; task = queue.peek()) {
      if (this.#keyOf(task) === queue.peekKey()) return task
      queue.pop()
    }
    return undefined
  }

  /** Takes the task out that {@link head} has just named. */
  take(): void {
    this.#alive--
    this.#queue.pop()
  }

  #compact(): void {
    // A task that went and came back with the same number has two entries that look alive: one is enough.
    const seen = new Set<Task>()
    this.#queue.compact((task, key) => {
      if (this.#keyOf(task) !== key || seen.has(task)) return false
      seen.add(task)
      return true
    })
  }
}

/** Pending tasks by their score: ready, or a lane of tasks that stand aside. */
export class Line implements Structure {
  readonly state = 'pending'
  /** `kind:<name>`, `group:<id>`; `undefined` for ready. */
  readonly lane: string | undefined
  readonly #order: Order = new Order((task) => (task.where === this ? task.score : undefined))
  readonly #lanes: Map<string, Line> | undefined

  /** @param lanes from where an empty lane takes itself off */
  constructor(lane?: string, lanes?: Map<string, Line>) {
    this.lane = lane
    this.#lanes = lanes
  }

  get size(): number {
    return this.#order.size
  }

  get entries(): number {
    return this.#order.entries
  }

  enter(task: Task): void {
    task.where = this
    this.#order.add(task.score, task)
  }

  leave(task: Task): void {
    task.where = NOWHERE
    this.#order.dropped()
    this.#closeEmpty()
  }

  head(): Task | undefined {
    return this.#order.head()
  }

  /** Lets the head go. */
  take(task: Task): void {
    task.where = NOWHERE
    this.#order.take()
    this.#closeEmpty()
  }

  #closeEmpty(): void {
    if (this.#lanes !== undefined && this.#order.size === 0) this.#lanes.delete(this.lane as string)
  }
}

/** Scheduled tasks by the time at which they are due. */
export class Due implements Structure {
  readonly state = 'scheduled'
  readonly #order: Order = new Order((task) => (task.where === this ? task.rare?.dueAt : undefined))

  get size(): number {
    return this.#order.size
  }

  get entries(): number {
    return this.#order.entries
  }

  enter(task: Task, dueAt: number): void {
    task.where = this
    this.#order.add(dueAt, task)
  }

  leave(task: Task): void {
    task.where = NOWHERE
    this.#order.dropped()
  }

  head(): Task | undefined {
    return this.#order.head()
  }

  take(task: Task): void {
    task.where = NOWHERE
    this.#order.take()
  }
}

/** Tasks linked through themselves, in the order in which they entered. No object per task. */
export class Chain implements Structure {
  readonly state: TaskState
  size = 0
  oldest: Task | undefined = undefined
  newest: Task | undefined = undefined

  constructor(state: TaskState) {
    this.state = state
  }

  enter(task: Task): void {
    task.where = this
    task.prev = this.newest
    if (this.newest === undefined) this.oldest = task
    else this.newest.next = task
    this.newest = task
    this.size++
  }

  leave(task: Task): void {
    task.where = NOWHERE
    if (task.prev === undefined) this.oldest = task.next
    else task.prev.next = task.next
    if (task.next === undefined) this.newest = task.prev
    else task.next.prev = task.prev
    task.prev = undefined
    task.next = undefined
    this.size--
  }
}

/** Final records in the order of their ends, with what retention has looked at. */
export class Done extends Chain {
  /** Records that the present step added. */
  entered = 0
  declare readonly state: FinalState
  /** The oldest record that retention has not looked at. All before it are in `#kept`. */
  #candidate: Task | undefined = undefined
  /** Records that had to stay although their time had come, by the time of the next look. */
  readonly #kept = new PriorityQueue<Task>()

  override enter(task: Task): void {
    super.enter(task)
    this.entered++
    this.#candidate ??= task
  }

  override leave(task: Task): void {
    if (this.#candidate === task) this.#candidate = task.next
    super.leave(task)
  }

  /**
   * Hands at most `limit` records that are beyond the rule to `forget`, oldest first.
   *
   * @returns whether there is more to do
   */
  prune(rule: RetentionRule, now: number, limit: number, forget: (task: Task) => void): boolean {
    let looks = limit
    // First what had to stay until now: it is older, and counts.
    for (; looks > 0 && (this.#kept.peekKey() ?? Infinity) <= now; looks--) {
      const task = this.#kept.pop() as Task
      if (task.where !== this) continue
      if (mustStay(task, now)) this.#kept.push(now + LOOK_AGAIN_MS, task)
      else if (this.#isOver(task, rule, now)) forget(task)
      else this.#kept.push(task.since + Math.max(rule.age, YOUNG_MS), task)
    }
    for (; looks > 0; looks--) {
      const task = this.#candidate
      if (task === undefined || !this.#isOver(task, rule, now)) break
      if (mustStay(task, now)) {
        this.#candidate = task.next
        this.#kept.push(now + LOOK_AGAIN_MS, task)
      } else forget(task)
    }
    return looks === 0
  }

  #isOver(task: Task, rule: RetentionRule, now: number): boolean {
    const age = now - task.since
    return age >= YOUNG_MS && (age >= rule.age || this.size > rule.count)
  }
}

function mustStay(task: Task, now: number): boolean {
  return (task.watch !== undefined && task.watch.until > now) || hasDependents(task)
}

/** Whether unfinished tasks name it as a parent. */
export const hasDependents = (task: Task): boolean => (task.rare?.dependents?.size ?? 0) > 0
