/** The groups of a queue: their flags, the sweeps that carry those to members, and how long flags outlive members. */
import { DAY_MS } from './memory-retention.js'
import { Group, rareOf, type Task } from './memory-task.js'
import { PriorityQueue } from './priority-queue.js'

/** What a sweep does to one task; both belong to the queue. */
export interface SweepActions {
  /** Ends a member of a cancelled group, unless its parents will. */
  cancel(task: Task): void
  /** Brings the first task back from the lane of a group that goes on. @returns whether there was one */
  openNext(group: Group): boolean
}

/** A group whose waiting members have not all felt its flags. */
interface Sweep {
  readonly group: Group
  /** Members to cancel; `undefined` when its lane is to be opened. */
  readonly members: Iterator<Task> | undefined
}

export class Groups {
  readonly #byId = new Map<string, Group>()
  readonly #sweeps: Sweep[] = []
  /** Flagged groups without a record, by the time at which their flags may go. */
  readonly #empty = new PriorityQueue<Group>()

  /** Whether sweeps are left for later steps. */
  get isBehind(): boolean {
    return this.#sweeps.length > 0
  }

  get(id: string): Group {
    let group = this.#byId.get(id)
    if (group === undefined) this.#byId.set(id, (group = new Group(id)))
    return group
  }

  join(task: Task, id: string, exempt: boolean): void {
    const group = this.get(id)
    const rare = rareOf(task)
    rare.group = group
    rare.exempt = exempt
    group.records++
    if (!exempt) group.members.add(task)
  }

  /** A member's record is gone. */
  left(group: Group, now: number): void {
    if (--group.records === 0) this.#fade(group, now)
  }

  /** Sets flags, which hold for later members too. What they mean for present ones is for sweeps to carry out. */
  flag(group: Group, cancelled: boolean, paused: boolean | undefined, now: number): void {
    if (cancelled && !group.cancelled) {
      group.cancelled = true
      this.#sweeps.push({ group, members: group.members.values() })
    }
    if (paused !== undefined) {
      if (group.paused && !paused) this.#sweeps.push({ group, members: undefined })
      group.paused = paused
    }
    if (group.records === 0) this.#fade(group, now)
  }

  /** Carries flags to at most `limit` members. @returns how many it looked at */
  sweep(limit: number, actions: SweepActions): number {
    let count = 0
    for (let sweep = this.#sweeps[0]; count < limit && sweep !== undefined; sweep = this.#sweeps[0]) {
      if (sweep.members === undefined) {
        if (!sweep.group.paused && actions.openNext(sweep.group)) count++
        else this.#sweeps.shift()
        continue
      }
      const next = sweep.members.next()
      if (next.done === true) this.#sweeps.shift()
      else {
        count++
        actions.cancel(next.value)
      }
    }
    return count
  }

  /** Lets at most `limit` groups go that have had no record for a day. */
  prune(now: number, limit: number): void {
    for (let left = limit; left > 0 && (this.#empty.peekKey() ?? Infinity) <= now; left--) {
      const group = this.#empty.pop() as Group
      const isOver = group.records === 0 && group.emptySince + DAY_MS <= now
      if (isOver && this.#byId.get(group.id) === group) this.#byId.delete(group.id)
    }
  }

  /** Without a flag there is nothing to remember of an empty group; else it is remembered like a chosen id. */
  #fade(group: Group, now: number): void {
    if (!group.cancelled && !group.paused) {
      this.#byId.delete(group.id)
      return
    }
    group.emptySince = now
    this.#empty.push(now + DAY_MS, group)
  }
}
