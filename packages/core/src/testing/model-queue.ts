/**
 * The model of one queue: where each task stands, and what may be asked of it.
 *
 * It carries out a call at once and to its end. A driver may leave a part of that to later steps (dependents further
 * down than one level, sweeps): such calls are marked by {@link ModelQueue.isBehind}, and the tasks that they may not
 * have reached yet are {@link ModelQueue.loose}. Whoever compares drains first.
 */
import assert from 'node:assert/strict'
import type { Dependencies, GroupFlags, HistoryBucket, QueueRef, Retention } from '../storage.js'
import type { FinalState, TaskState } from '../task.js'
import {
  FINAL,
  isDoomed,
  isEnded,
  isHeldBack,
  type ModelGroup,
  type ModelSession,
  type ModelTask,
  type Place,
} from './model-task.js'

const MINUTE = 60_000
const DAY = 86_400_000
/** How long a registration lasts that came with its task, and a record stays for who was told of it. */
export const WATCHED = 60_000

/** Ids that leave no tombstone, and of which each is a repeat. */
export const GENERATED: RegExp = /^[0-9A-Za-z]{13}~$/
/** Whether a task went on by its own time, after some of its parents, or because of the last of them. */
export type Tangle =
  | { readonly by: 'time'; readonly after: readonly string[] }
  | { readonly by: 'parents'; readonly after?: never }

type Counted = Exclude<keyof HistoryBucket, 'at'>

export class ModelQueue {
  readonly ref: QueueRef
  readonly tasks: Map<string, ModelTask> = new Map<string, ModelTask>()
  readonly groups: Map<string, ModelGroup> = new Map<string, ModelGroup>()
  readonly tombstones: Map<string, { nonce: string | undefined; until: number }> = new Map()
  readonly history: Map<number, Record<Counted, number>> = new Map()
  readonly sessions: Set<ModelSession> = new Set<ModelSession>()
  /** Of each debounce key and kind, the newest task that was stored with it. */
  readonly windows: Map<string, ModelTask> = new Map<string, ModelTask>()
  /** Of the session opened last. */
  retention: Retention | undefined = undefined
  paused = false
  now = 0

  // Of the present step.
  step = 0
  /** Whether the driver may have left something to later steps. */
  isBehind = false
  /** Whether dependents heard of ends. A driver may come again to see whether that goes further. */
  hasSpread = false
  /** Tasks that it may not have reached yet. */
  readonly loose: Set<ModelTask> = new Set<ModelTask>()
  /** Tasks that became ready, and those that were ready and may be claimed again after a pause. */
  readonly fresh: Set<ModelTask> = new Set<ModelTask>()
  readonly reopened: Set<ModelTask> = new Set<ModelTask>()
  /** Ends and removals that watchers are told of. */
  readonly told: { watcher: string; id: string }[] = []
  /** What watchers may be told besides: who registers for what is final already learns it from the reply. */
  readonly maybeTold: { watcher: string; id: string }[] = []
  /** Groups that were cancelled. */
  readonly swept: Set<ModelGroup> = new Set<ModelGroup>()
  ended = 0
  /** How far down in the step a blocked task has heard of ends: the furthest counts. */
  readonly #levels = new Map<ModelTask, number>()
  /** Ends whose dependents are to hear of them later in the step. */
  #untold: { task: ModelTask; level: number }[] | undefined

  constructor(ref: QueueRef) {
    this.ref = ref
  }

  /** Begins a step. */
  begin(now: number): void {
    this.now = now
    for (const { place } of this.loose) if (place.step === this.step) place.latest++
    this.step++
    this.isBehind = false
    this.hasSpread = false
    this.loose.clear()
    this.#levels.clear()
    this.fresh.clear()
    this.reopened.clear()
    this.told.length = 0
    this.maybeTold.length = 0
    this.swept.clear()
    this.ended = 0
  }

  // --------------------------------------------------------------------------------------------- what is where

  in(state: TaskState): ModelTask[] {
    return [...this.tasks.values()].filter((task) => task.state === state)
  }

  /** Unfinished tasks that need this one's record. */
  dependentsOf(parent: ModelTask): ModelTask[] {
    return [...this.tasks.values()].filter((task) => task.pins.has(parent))
  }

  /** What the session could claim now. */
  claimable(session: ModelSession): ModelTask[] {
    if (this.paused) return []
    return this.in('pending').filter(
      (task) => session.kinds.includes(task.kind) && !isHeldBack(task) && !this.hasExpired(task),
    )
  }

  hasExpired(task: ModelTask): boolean {
    return !isEnded(task) && task.deadline !== undefined && task.deadline <= this.now
  }

  /** ms until the next task is due or the next deadline passes. */
  nextDueIn(): number | undefined {
    const times = [...this.tasks.values()].flatMap((task) =>
      isEnded(task) ? [] : [task.dueAt, task.deadline],
    )
    const next = Math.min(...times.map((time) => time ?? Infinity))
    return next === Infinity ? undefined : Math.max(0, next - this.now)
  }

  group(id: string): ModelGroup {
    const group = this.groups.get(id) ?? { id, cancelled: false, paused: false }
    this.groups.set(id, group)
    return group
  }

  /** Whether the task has an ancestor, among those that it waits for, that is one of these. */
  waitsForAny(task: ModelTask, others: ReadonlySet<ModelTask>): boolean {
    return [...task.open].some((id) => {
      const parent = this.tasks.get(id)
      return parent !== undefined && (others.has(parent) || this.waitsForAny(parent, others))
    })
  }

  isBuried(id: string): boolean {
    return (this.tombstones.get(id)?.until ?? 0) > this.now
  }

  /** Registers a watcher, or keeps the record for who reads it. */
  watchOne(task: ModelTask, watcher: string, ttl: number): void {
    if (isEnded(task)) {
      this.maybeTold.push({ watcher, id: task.id })
      task.keptUntil = Math.max(task.keptUntil, this.now + WATCHED)
    } else task.watchers.set(watcher, Math.max(task.watchers.get(watcher) ?? 0, this.now + ttl))
  }

  count(what: Counted): void {
    const at = this.now - (this.now % MINUTE)
    const bucket = this.history.get(at) ?? {
      enqueued: 0,
      success: 0,
      failed: 0,
      cancelled: 0,
      skipped: 0,
      retried: 0,
    }
    bucket[what]++
    this.history.set(at, bucket)
  }

  // ---------------------------------------------------------------------------------------------------- moves

  /** Takes the task from where it stands. */
  leave(task: ModelTask): void {
    task.session?.entries.delete(task)
    task.session = undefined
    task.started = false
    task.dueAt = undefined
  }

  newPlace(task: ModelTask, by: Place['by'] = 'other', rank = 0): void {
    task.place = { priority: task.place.priority, step: this.step, latest: this.step, by, rank }
  }

  /** Where it goes when nothing blocks it (any more). Its delay starts now. */
  free(task: ModelTask, level = 0): void {
    const dueAt = Math.max(task.delay === undefined ? 0 : this.now + task.delay, task.runAt ?? 0)
    task.delay = undefined
    task.runAt = undefined
    if (dueAt > this.now) this.schedule(task, dueAt, level)
    else this.ready(task, level)
  }

  ready(task: ModelTask, level = 0): void {
    if (isDoomed(task)) {
      this.endByGroup(task, level)
      return
    }
    task.state = 'pending'
    task.since = this.now
    this.fresh.add(task)
  }

  schedule(task: ModelTask, dueAt: number, level = 0): void {
    if (isDoomed(task)) {
      this.endByGroup(task, level)
      return
    }
    task.state = 'scheduled'
    task.since = this.now
    task.dueAt = dueAt
  }

  /** Back to its old place. */
  giveBack(task: ModelTask): void {
    this.leave(task)
    this.ready(task)
  }

  addParents(task: ModelTask, after: Dependencies): void {
    task.after = { ids: [...new Set([...(task.after?.ids ?? []), ...after.ids])], on: after.on }
    for (const id of after.ids) {
      const parent = this.tasks.get(id)
      assert.ok(parent)
      task.pins.add(parent)
      if (!isEnded(parent)) task.open.add(id)
    }
  }

  isRefusedBy(after: Dependencies): boolean {
    const states = after.ids.map((id) => this.tasks.get(id)?.state as TaskState)
    return after.on === 'success' && states.some((state) => FINAL.includes(state) && state !== 'success')
  }

  // ---------------------------------------------------------------------------------------------------- ends

  /** @param level how many ends of other tasks, in this step, led to this one */
  finish(task: ModelTask, state: FinalState, token: number | undefined, level = 0): void {
    this.leave(task)
    task.state = state
    task.since = this.now
    task.decided = token === undefined
    task.deadline = undefined
    task.suspended = false
    task.probation = false
    task.timedOut = false
    this.fresh.delete(task)
    this.ended++
    this.count(state)
    this.#unpin(task)
    this.#tell(task)
    if (level > 1) this.#isLoose(task)
    if (this.#untold) this.#untold.push({ task, level })
    else this.#tellDependents(task, level)
  }

  #tellDependents(parent: ModelTask, level: number): void {
    for (const child of this.tasks.values()) {
      if (child.state === 'blocked' && child.open.delete(parent.id))
        this.#hear(child, parent.state as FinalState, level + 1)
    }
  }

  /** A blocked task learns of the end of a parent. */
  #hear(child: ModelTask, state: FinalState, at: number): void {
    const level = Math.max(at, this.#levels.get(child) ?? 0)
    this.#levels.set(child, level)
    this.hasSpread = true
    if (level > 1) this.isBehind = true
    if (state !== 'success' && child.after?.on === 'success') {
      this.end(child, 'cancelled', 'DEPENDENCY_FAILED', level)
    } else if (child.open.size === 0 && !child.held) {
      this.#unblock(child, level)
      if (level > 1) this.#isLoose(child)
    }
  }

  #isLoose(task: ModelTask): void {
    this.loose.add(task)
    this.isBehind = true
  }

  /** Ends a task that no settlement decided about. Who holds it is told. */
  end(task: ModelTask, state: FinalState, reason: string, level = 0, message?: string): void {
    this.takeAway(task, 'cancelled')
    task.reason = reason
    task.otherReason = undefined
    task.message = message
    this.finish(task, state, undefined, level)
  }

  endByGroup(task: ModelTask, level = 0): void {
    // Like a sweep: its dependents may be left to later steps.
    this.isBehind = true
    this.end(task, 'cancelled', 'GROUP_CANCELLED', level)
  }

  /** Takes the entry away, and tells its session if that lives. */
  takeAway(task: ModelTask, reason: string): void {
    const { session, token } = task
    if (session === undefined) return
    if (session.over === undefined) session.taken.push({ id: task.id, token, reason, seq: undefined })
    this.leave(task)
  }

  /** An entry that was taken back: to its old place, or to its end when that happened too often. */
  takeBack(task: ModelTask, counts: boolean, maxReclaims: number): 'reclaimed' | 'poisoned' {
    this.leave(task)
    if (!counts) task.probation = true
    else if (++task.reclaims > maxReclaims) {
      this.end(task, 'failed', 'POISON')
      return 'poisoned'
    }
    this.ready(task)
    return 'reclaimed'
  }

  #unblock(task: ModelTask, level = 0): void {
    task.open.clear()
    if (task.suspended) {
      task.suspended = false
      task.deadline = undefined
    }
    this.newPlace(task)
    this.free(task, level)
  }

  /** What it needed, it needs no more. */
  #unpin(task: ModelTask): void {
    for (const parent of task.pins) parent.neededUntil = this.now
    task.pins.clear()
    task.open.clear()
  }

  #tell(task: ModelTask): void {
    for (const [watcher, until] of task.watchers) {
      if (until <= this.now) continue
      this.told.push({ watcher, id: task.id })
      task.keptUntil = this.now + WATCHED
    }
    task.watchers.clear()
  }

  /** Its record is gone. */
  forget(task: ModelTask): void {
    this.leave(task)
    if (!isEnded(task)) this.#tell(task)
    this.#unpin(task)
    this.fresh.delete(task)
    this.tasks.delete(task.id)
    if (task.window && this.windows.get(task.window.key) === task) this.windows.delete(task.window.key)
    if (!GENERATED.test(task.id)) {
      this.tombstones.set(task.id, { nonce: task.nonce, until: this.now + DAY })
    }
  }

  // -------------------------------------------------------------------------------------------- falling due

  /** Whether a task waits for another although its own time has passed. */
  hasLateWaiting(): boolean {
    return this.in('blocked').some((task) => task.open.size > 0 && this.hasExpired(task))
  }

  /**
   * Tasks whose own deadline has passed together with that of a task for which they wait. Both orders are permitted,
   * so the driver has to say what it chose.
   */
  tangled(): ModelTask[] {
    const late = new Set([...this.tasks.values()].filter((task) => this.hasExpired(task)))
    return [...late].filter((task) => this.waitsForAny(task, late))
  }

  /**
   * What a claim and upkeep do first: due tasks, and deadlines that have passed.
   *
   * @param order of those that are {@link tangled}, what the driver chose
   */
  pass(order: ReadonlyMap<ModelTask, Tangle> = new Map()): void {
    for (const task of this.in('scheduled')) {
      const dueAt = task.dueAt as number
      if (dueAt > this.now) continue
      this.leave(task)
      this.newPlace(task, 'due', dueAt)
      this.ready(task)
    }
    const late = [...this.tasks.values()].filter((task) => this.hasExpired(task))
    const untold = (this.#untold = [] as { task: ModelTask; level: number }[])
    for (const task of late) {
      const tangle = order.get(task)
      if (tangle?.by === 'parents') continue
      // These told it of their ends before.
      for (const id of tangle?.after ?? []) task.open.delete(id)
      if (task.suspended) this.#timeOut(task)
      else this.end(task, 'cancelled', 'TASK_EXPIRED')
    }
    this.#untold = undefined
    for (const { task, level } of untold) this.#tellDependents(task, level)
    for (const task of late) assert.ok(!this.hasExpired(task), `${task.id} has not gone on`)
  }

  #timeOut(task: ModelTask): void {
    const { ids, on } = task.after as Dependencies
    for (const id of task.open) {
      const parent = this.tasks.get(id)
      if (parent === undefined) continue
      task.pins.delete(parent)
      parent.neededUntil = this.now
    }
    task.after = { ids: ids.filter((id) => !task.open.has(id)), on }
    task.timedOut = true
    this.#unblock(task)
  }

  // -------------------------------------------------------------------------------------- pauses and flags

  pause(paused: boolean): void {
    if (this.paused && !paused) for (const task of this.in('pending')) this.reopened.add(task)
    this.paused = paused
  }

  setGroup(id: string, flags: GroupFlags): void {
    const group = this.group(id)
    if (flags.paused !== undefined) {
      if (group.paused && !flags.paused) {
        for (const task of this.in('pending'))
          if (task.group === group && !task.exempt) this.reopened.add(task)
      }
      group.paused = flags.paused
    }
    if (flags.cancelled === true) this.cancelGroup(group)
    // Sweeps may be left to later steps.
    this.isBehind = true
  }

  cancelGroup(group: ModelGroup): void {
    group.cancelled = true
    this.swept.add(group)
    this.isBehind = true
  }

  /** What the flags mean for members: ends of all but those that their parents will end. */
  sweep(): void {
    const members = [...this.tasks.values()].filter(
      (task) =>
        task.group !== undefined &&
        this.swept.has(task.group) &&
        !task.exempt &&
        !isEnded(task) &&
        (task.state !== 'blocked' || task.held),
    )
    // One that waits for another may hear of the flag, or first of the other's end.
    const either = members.filter((task) => this.waitsForAny(task, new Set(members)))
    // Dependents of members are a level further down than the flag.
    for (const task of [...either, ...members]) if (!isEnded(task)) this.endByGroup(task, 1)
    for (const task of either) if (task.after?.on === 'success') task.otherReason = 'DEPENDENCY_FAILED'
    this.swept.clear()
  }

  // ---------------------------------------------------------------------------------- settlements, one by one

  /** How an attempt ends that is not final: it had started, so neither expiry nor probation is left. */
  pauseAttempt(task: ModelTask): void {
    task.probation = false
    task.deadline = undefined
    this.leave(task)
    task.state = 'blocked'
  }

  retryIn(task: ModelTask, ms: number): void {
    this.schedule(task, this.now + ms)
  }

  suspend(task: ModelTask, after: Dependencies | undefined, until: number | undefined): void {
    this.newPlace(task)
    if (after === undefined) {
      if (until === undefined) this.ready(task)
      else this.schedule(task, this.now + until)
      return
    }
    if (after.ids.some((id) => id === task.id || !this.tasks.has(id))) {
      this.end(task, 'cancelled', 'DEPENDENCY_NOT_FOUND')
      return
    }
    this.addParents(task, after)
    if (this.isRefusedBy(after)) this.end(task, 'cancelled', 'DEPENDENCY_FAILED')
    else if (task.open.size === 0) this.ready(task)
    else {
      task.since = this.now
      task.suspended = true
      if (until !== undefined) task.deadline = this.now + until
    }
  }
}
