/**
 * What a queue sees of a session: the structure that holds its lease entries, and what it has to be told.
 *
 * An entry is the task itself, linked into its session's chain, with the token of its claim. (session, id, token) is
 * valid while the task is in this chain with that token; that is all there is to ownership.
 */
import { Chain } from './memory-structures.js'
import type { Task } from './memory-task.js'
import type { SessionOptions, Taken } from './storage.js'
import type { TakenReason } from './task.js'

interface Notice extends Taken {
  readonly seq: number
}

export class Lease extends Chain {
  readonly id: string
  readonly options: SessionOptions
  readonly kinds: ReadonlySet<string>
  /** `ended` and `condemned`: every call is answered `gone`, the entries go back in bounded pieces, once. */
  over: false | 'ended' | 'condemned' = false
  /** The newest token issued to it. */
  token = 0
  /** Entries marked as started. */
  marked = 0
  takenSeq = 0
  #taken: Notice[] = []

  constructor(id: string, options: SessionOptions) {
    super('running')
    this.id = id
    this.options = options
    this.kinds = new Set(options.serves.kinds)
  }

  /** Whether every call that names it is answered `gone`. */
  isOver(): boolean {
    return this.over !== false
  }

  holds(task: Task, token: number): boolean {
    return task.where === this && task.token === token
  }

  /** The entry of a claim. */
  grant(task: Task, token: number, now: number): void {
    task.token = token
    task.since = now
    this.enter(task)
  }

  mark(task: Task): void {
    if (task.started) return
    task.started = true
    this.marked++
  }

  override leave(task: Task): void {
    if (task.started) this.marked--
    task.started = false
    super.leave(task)
  }

  /** Notes that an entry was taken from the living session; it is told until it acknowledges. */
  noteTaken(task: Task, reason: TakenReason): void {
    this.#taken.push({ id: task.id, token: task.token, reason, seq: ++this.takenSeq })
  }

  acknowledge(seq: number): void {
    if (this.#taken.length > 0) this.#taken = this.#taken.filter((notice) => notice.seq > seq)
  }

  taken(): readonly Taken[] {
    return this.#taken.length === 0
      ? NONE
      : this.#taken.map(({ id, token, reason }) => ({ id, token, reason }))
  }
}

const NONE: readonly Taken[] = []
