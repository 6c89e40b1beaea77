/**
 * The state machine of one queue.
 *
 * Invariants, true between any two steps:
 * 1. Every task in `tasks` is in exactly one structure: ready, a lane, due, need, the lease of a session, or done.
 *    A task that is in none is not in `tasks` either.
 * 2. A final state is entered by {@link MemoryQueue.finish} only, and left by {@link MemoryQueue.revive} only.
 * 3. A task in need is held, or names at least one parent in `open`, whose cascade is still to come: the parent is
 *    unfinished, or its cascade is in `#cascades`.
 * 4. The dependents of a task are the unfinished tasks that name it in `after`. While there are any, its record stays.
 *
 * The methods below are parts of steps; a step is one call of a face, runs without a pause, and ends with
 * {@link MemoryQueue.conclude}.
 */
import { IdMap } from './id-map.js'
import { Groups } from './memory-groups.js'
import { Lease } from './memory-lease.js'
import type { MemoryNotices } from './memory-notices.js'
import type { MemoryRecords } from './memory-records.js'
import { History, Tombstones } from './memory-retention.js'
import { Chain, Done, Due, Line, Order, hasDependents } from './memory-structures.js'
import { isDoomed, rareOf, type Group, type Rare, type Task } from './memory-task.js'
import { WakeUps } from './memory-wake.js'
import { tellWatchers } from './memory-watch.js'
import type { Dependencies, Guard, QueueRef, Retention } from './storage.js'
import { TASK_STATES, isFinal, isGeneratedId, type FinalState, type TakenReason } from './task.js'

/** Dependents released in a step; the rest are left to the claims and to upkeep. */
const RELEASE_LIMIT = 100
/** Members of a group looked at in a step. */
const SWEEP_LIMIT = 200
/** Records that one end may remove: two, so that retention catches up with any rate. */
const PRUNE_PER_END = 2

const FINAL_STATES = TASK_STATES.filter(isFinal)

/** A final parent whose dependents have not all heard of it. */
interface Cascade {
  readonly parent: Task
  readonly end: number
  readonly state: FinalState
  readonly rest: Iterator<Task>
}

export class MemoryQueue {
  readonly ref: QueueRef
  readonly notices: MemoryNotices
  readonly tasks: IdMap<Task> = new IdMap<Task>()
  readonly ready: Line = new Line()
  readonly lanes: Map<string, Line> = new Map<string, Line>()
  readonly due: Due = new Due()
  readonly need: Chain = new Chain('blocked')
  readonly done: Readonly<Record<FinalState, Done>> = {
    success: new Done('success'),
    failed: new Done('failed'),
    cancelled: new Done('cancelled'),
    skipped: new Done('skipped'),
  }
  /** Sessions that live or still hold something. */
  readonly leases: Set<Lease> = new Set<Lease>()
  readonly deadlines: Order = new Order((task) => task.rare?.deadline)
  readonly groups: Groups = new Groups()
  readonly tombstones: Tombstones = new Tombstones()
  /** The newest task of each debounce key. */
  readonly windows: Map<string, Task> = new Map<string, Task>()
  readonly history: History = new History()
  readonly wakeUps: WakeUps
  /** The rule of the session opened last; ends apply it. */
  retention: Retention | undefined = undefined
  paused = false

  readonly #records: MemoryRecords
  #sequence = 0
  #ends = 0
  readonly #cascades: Cascade[] = []

  // Of the present step: whether it ended tasks, and what it used of its bounds.
  #ended = false
  #released = 0
  #swept = 0

  constructor(ref: QueueRef, notices: MemoryNotices, records: MemoryRecords) {
    this.ref = { tenant: ref.tenant, queue: ref.queue }
    this.notices = notices
    this.#records = records
    this.wakeUps = new WakeUps(this.ref, this.ready, notices)
  }

  // ------------------------------------------------------------------------------------------ what is where

  pendingCount(): number {
    let count = this.ready.size
    for (const lane of this.lanes.values()) count += lane.size
    return count
  }

  /** Whether the claim holds that a task comes from. */
  holds({ key, version }: Guard): boolean {
    return this.#records.versionOf(this.ref.tenant, key) === version
  }

  /** What `maxQueueSize` bounds. */
  waitingCount(): number {
    return this.pendingCount() + this.due.size + this.need.size
  }

  /** The lane of that name, opened when it is not. */
  lane(name: string): Line {
    let lane = this.lanes.get(name)
    if (lane === undefined) this.lanes.set(name, (lane = new Line(name, this.lanes)))
    return lane
  }

  // ------------------------------------------------------------------------------------- the waiting states

  /** A place at the end of its priority. */
  renumber(task: Task): void {
    task.sequence = this.nextSequence()
  }

  /** The age of a new task. */
  nextSequence(): number {
    return ++this.#sequence
  }

  /** Puts a task that nothing blocks (any more) where it belongs. Its delay starts now. */
  free(task: Task, now: number): void {
    const rare = task.rare
    if (rare !== undefined) {
      const dueAt = Math.max(rare.delay === undefined ? 0 : now + rare.delay, rare.runAt ?? 0)
      rare.delay = undefined
      rare.runAt = undefined
      if (dueAt > now) {
        this.schedule(task, dueAt, now)
        return
      }
    }
    this.toReady(task, now)
  }

  /** Puts the task in ready, at the place that its score says. */
  toReady(task: Task, now: number): void {
    if (task.rare !== undefined && isDoomed(task.rare)) {
      this.endByGroup(task, now)
      return
    }
    this.wakeUps.noteReady(task)
    task.since = now
    this.ready.enter(task)
  }

  schedule(task: Task, dueAt: number, now: number): void {
    const rare = rareOf(task)
    if (isDoomed(rare)) {
      this.endByGroup(task, now)
      return
    }
    if (this.wakeUps.idle.size > 0 && dueAt < this.nextTime()) this.wakeUps.noteSooner(task)
    rare.dueAt = dueAt
    task.since = now
    this.due.enter(task, dueAt)
  }

  /** Names the parents in the definition, whose records stay from now on, and in `open` those not final yet. */
  addParents(task: Task, after: Dependencies): void {
    const rare = rareOf(task)
    rare.after = { ids: [...new Set([...(rare.after?.ids ?? []), ...after.ids])], on: after.on }
    for (const id of after.ids) {
      const parent = this.tasks.get(id) as Task
      this.#pin(parent, task)
      if (!isFinal(parent.where.state)) (rare.open ??= new Set()).add(id)
    }
  }

  /** Whether a parent has ended otherwise than `after` asks. */
  isRefusedBy(after: Dependencies): boolean {
    if (after.on === 'final') return false
    return after.ids.some((id) => {
      const state = (this.tasks.get(id) as Task).where.state
      return isFinal(state) && state !== 'success'
    })
  }

  block(task: Task, now: number): void {
    task.since = now
    this.need.enter(task)
  }

  /** The time at which the deadline index comes back to the task. */
  setDeadline(task: Task, at: number): void {
    const rare = rareOf(task)
    this.clearDeadline(rare)
    rare.deadline = at
    this.deadlines.add(at, task)
  }

  clearDeadline(rare: Rare): void {
    if (rare.deadline === undefined) return
    rare.deadline = undefined
    this.deadlines.dropped()
  }

  /** Gives a waiting task the place of its age within another priority, wherever it waits. */
  reprioritize(task: Task, priority: number, now: number): void {
    const { where, since } = task
    if (!(where instanceof Line)) {
      task.priority = priority
      return
    }
    where.leave(task)
    task.priority = priority
    if (where === this.ready) this.toReady(task, now)
    else this.lane(where.lane as string).enter(task)
    if (task.where.state === 'pending') task.since = since
  }

  // --------------------------------------------------------------------------------------------- the ends

  /**
   * The only door to a final state, for a task wherever it is.
   *
   * @param token that of the settlement which decides, 0 when something else does
   */
  finish(task: Task, state: FinalState, token: number, now: number): void {
    task.where.leave(task)
    task.token = token
    task.since = now
    task.sequence = ++this.#ends
    const done = this.done[state]
    done.enter(task)
    this.history.count(state, now)
    if (task.watch !== undefined) tellWatchers(this.notices, task, now)
    const rare = task.rare
    if (rare !== undefined) {
      this.#close(task, rare)
      if (rare.dependents !== undefined && rare.dependents.size > 0) {
        this.#cascades.push({ parent: task, end: task.sequence, state, rest: rare.dependents.values() })
      }
    }
    this.#ended = true
  }

  /** Ends a task that no settlement decided about. */
  end(task: Task, state: FinalState, reason: string, now: number, message?: string): void {
    const rare = rareOf(task)
    rare.reason = reason
    rare.message = message
    this.takeAway(task, 'cancelled')
    this.finish(task, state, 0, now)
  }

  endByGroup(task: Task, now: number): void {
    this.end(task, 'cancelled', 'GROUP_CANCELLED', now)
  }

  /** Takes a running task's entry and tells its session. @returns whose it was, `undefined` when it has none */
  takeAway(task: Task, reason: TakenReason): Lease | undefined {
    const lease = task.where
    if (!(lease instanceof Lease)) return undefined
    if (!lease.isOver()) {
      lease.noteTaken(task, reason)
      this.wakeUps.call(lease)
    }
    lease.leave(task)
    return lease
  }

  /** A final task's next life, at the end of its priority. */
  revive(task: Task, now: number): void {
    task.where.leave(task)
    task.token = 0
    task.attempts = 0
    task.result = undefined
    task.resultCodec = undefined
    task.duration = undefined
    task.watch = undefined
    const rare = task.rare
    if (rare !== undefined) {
      rare.held = false
      rare.reclaims = 0
      rare.probation = false
      rare.timedOut = false
      rare.suspended = false
      rare.delay = undefined
      rare.runAt = undefined
      rare.error = undefined
      rare.fingerprint = undefined
      rare.reason = undefined
      rare.message = undefined
      rare.progress = undefined
      if (rare.window !== undefined) rare.window.openedAt = undefined
      if (rare.group !== undefined && !rare.exempt) rare.group.members.add(task)
      for (const id of rare.after?.ids ?? []) {
        const parent = this.tasks.get(id)
        if (parent !== undefined) this.#pin(parent, task)
      }
    }
    this.renumber(task)
    this.toReady(task, now)
  }

  /** Removes every trace of a task that no unfinished one needs. Its id stays taken, unless it was a generated one. */
  forget(task: Task, now: number): void {
    const final = isFinal(task.where.state)
    task.where.leave(task)
    this.tasks.take(task.id)
    if (!isGeneratedId(task.id)) this.tombstones.add(task.id, task.nonce, now)
    if (task.watch !== undefined && !final) tellWatchers(this.notices, task, now)
    const rare = task.rare
    if (rare === undefined) return
    if (rare.window !== undefined && this.windows.get(rare.window.key) === task)
      this.windows.delete(rare.window.key)
    if (!final) this.#close(task, rare)
    if (rare.group !== undefined) this.groups.left(rare.group, now)
  }

  /** Unties an unfinished task from everything that waits for it to move. */
  #close(task: Task, rare: Rare): void {
    this.clearDeadline(rare)
    rare.suspended = false
    rare.open = undefined
    rare.dueAt = undefined
    rare.group?.members.delete(task)
    for (const id of rare.after?.ids ?? []) this.tasks.get(id)?.rare?.dependents?.delete(task)
  }

  #pin(parent: Task, child: Task): void {
    const rare = rareOf(parent)
    rare.dependents ??= new Set()
    rare.dependents.add(child)
  }

  // ------------------------------------------------------------------------------- pieces of bounded work

  /** Makes at most `limit` due tasks ready. @returns how many it did */
  promoteDue(now: number, limit: number): number {
    let count = 0
    const late: Task[] = []
    for (; count < limit; count++) {
      const task = this.due.head()
      if (task === undefined || (task.rare?.dueAt as number) > now) break
      this.due.take(task)
      late.push(task)
    }
    // In the order of their times; at the same time, of their age.
    if (late.length > 1) late.sort((a, b) => dueOf(a) - dueOf(b) || a.score - b.score)
    for (const task of late) this.promote(task, now)
    return count
  }

  /** Makes a task that has left due ready. */
  promote(task: Task, now: number): void {
    rareOf(task).dueAt = undefined
    this.renumber(task)
    this.toReady(task, now)
  }

  /** Carries out at most `limit` deadlines that have passed. @returns how many it did */
  passDeadlines(now: number, limit: number): number {
    let count = 0
    for (; count < limit; count++) {
      const task = this.deadlines.head()
      const rare = task?.rare
      if (task === undefined || rare?.deadline === undefined || rare.deadline > now) break
      if (rare.suspended) this.#timeOut(task, rare, now)
      else this.end(task, 'cancelled', 'TASK_EXPIRED', now)
    }
    return count
  }

  /** A suspended task's time is over: it goes on without the parents that are still open. */
  #timeOut(task: Task, rare: Rare, now: number): void {
    const open = rare.open ?? new Set<string>()
    for (const id of open) this.tasks.get(id)?.rare?.dependents?.delete(task)
    const { ids, on } = rare.after as Dependencies
    rare.after = { ids: ids.filter((id) => !open.has(id)), on }
    rare.timedOut = true
    this.#unblock(task, rare, now)
  }

  #unblock(task: Task, rare: Rare, now: number): void {
    this.need.leave(task)
    rare.open = undefined
    if (rare.suspended) {
      rare.suspended = false
      this.clearDeadline(rare)
    }
    this.renumber(task)
    this.free(task, now)
  }

  /** Tells at most `limit` dependents of the ends of their parents, one level at a time. @returns how many */
  release(now: number, limit: number): number {
    let count = 0
    while (count < limit) {
      const cascade = this.#cascades[0]
      if (cascade === undefined) break
      const { parent, state } = cascade
      // A parent that was retried meanwhile ends again, and then tells those that still wait.
      const isOver = parent.where !== this.done[state] || parent.sequence !== cascade.end
      const next = isOver ? undefined : cascade.rest.next()
      if (next === undefined || next.done === true) this.#cascades.shift()
      else {
        count++
        this.#tellDependent(next.value, parent.id, state, now)
      }
    }
    return count
  }

  #tellDependent(child: Task, parentId: string, state: FinalState, now: number): void {
    const rare = child.rare
    // Only who is blocked and names this parent is touched, so a repeat is harmless.
    if (child.where !== this.need || rare?.open === undefined || !rare.open.delete(parentId)) return
    if (state !== 'success' && rare.after?.on === 'success')
      this.end(child, 'cancelled', 'DEPENDENCY_FAILED', now)
    else if (rare.open.size === 0 && !rare.held) this.#unblock(child, rare, now)
  }

  /** Carries the flags of groups to at most `limit` members. @returns how many it looked at */
  sweep(now: number, limit: number): number {
    return this.groups.sweep(limit, {
      cancel: (task) => {
        if (task.where !== this.need || task.rare?.held === true) this.endByGroup(task, now)
      },
      openNext: (group) => this.#openNext(group, now),
    })
  }

  #openNext(group: Group, now: number): boolean {
    const lane = this.lanes.get(laneOf(group))
    const task = lane?.head()
    if (lane === undefined || task === undefined) return false
    const since = task.since
    lane.take(task)
    this.toReady(task, now)
    if (task.where === this.ready) task.since = since
    return true
  }

  // -------------------------------------------------------------------------------------- the end of a step

  /** When the next task is due or the next deadline passes; Infinity when none is. */
  nextTime(): number {
    const due = this.due.size === 0 ? undefined : this.due.head()?.rare?.dueAt
    const deadline = this.deadlines.size === 0 ? undefined : this.deadlines.head()?.rare?.deadline
    return Math.min(due ?? Infinity, deadline ?? Infinity)
  }

  /** Whether releases or sweeps are left for later steps. */
  get hasBacklog(): boolean {
    return this.#cascades.length > 0 || this.groups.isBehind
  }

  /** Releases and sweeps within the step's bounds. */
  spread(now: number): void {
    if (this.#cascades.length > 0) this.#released += this.release(now, RELEASE_LIMIT - this.#released)
    if (this.groups.isBehind) this.#swept += this.sweep(now, SWEEP_LIMIT - this.#swept)
  }

  /** Ends a step: spreads what it caused, and wakes whoever has something to do now. */
  conclude(now: number): void {
    if (this.hasBacklog) this.spread(now)
    this.wake(now)
  }

  /** The end of a step that has used up its bounds already. */
  wake(now: number): void {
    if (this.#ended) this.#makeRoom(now)
    this.#released = 0
    this.#swept = 0
    this.wakeUps.conclude(this.paused)
    // Somebody has to go on with what is left.
    if (this.hasBacklog) this.wakeUps.wake(1)
  }

  /** Stops or allows claims, and tells every session. */
  pause(paused: boolean): void {
    if (this.paused === paused) return
    this.paused = paused
    if (!paused) this.wakeUps.idle.clear()
    for (const lease of this.leases) if (!lease.isOver()) this.wakeUps.call(lease)
  }

  // -------------------------------------------------------------------------------------------- retention

  /** Removes a few old records for each new one. Last in a step, which may still name what it found. */
  #makeRoom(now: number): void {
    this.#ended = false
    for (const state of FINAL_STATES) {
      const done = this.done[state]
      const limit = PRUNE_PER_END * done.entered
      done.entered = 0
      if (limit === 0 || this.retention === undefined) continue
      done.prune(ruleOf(this.retention, state), now, limit, (task) => this.forget(task, now))
    }
  }

  /** Removes at most `limit` records, tombstones and flags whose time is over. @returns whether there is more */
  prune(retention: Retention, now: number, limit: number): boolean {
    let more = this.tombstones.prune(now, limit)
    const forget = (task: Task): void => this.forget(task, now)
    for (const state of FINAL_STATES) {
      const done = this.done[state]
      if (done.size > 0 && done.prune(ruleOf(retention, state), now, limit, forget)) more = true
    }
    this.groups.prune(now, limit)
    return more
  }

  /** The unfinished task that keeps this one from being removed. */
  neededBy(task: Task): string | undefined {
    if (!hasDependents(task)) return undefined
    for (const dependent of task.rare?.dependents ?? []) return dependent.id
    return undefined
  }
}

/** The name of the lane in which tasks of a paused group stand aside. */
export const laneOf = (group: Group): string => `group:${group.id}`

const ruleOf = (retention: Retention, state: FinalState): Retention['failed'] =>
  state === 'failed' ? retention.failed : retention.success

const dueOf = (task: Task): number => task.rare?.dueAt as number
