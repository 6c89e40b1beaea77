/** What the memory storage shows of its tasks: records, claims, pages, groups of errors. Nothing here changes any. */
import { encodedSize } from './codec.js'
import { Lease } from './memory-lease.js'
import type { MemoryQueue } from './memory-queue.js'
import { Line } from './memory-structures.js'
import { told, type Task } from './memory-task.js'
import type {
  Claimed,
  Encoded,
  ErrorGroup,
  FinalRecord,
  ListQuery,
  Parent,
  QueueCounts,
  TaskPage,
  TaskRecord,
} from './storage.js'
import { isFinal, type FinalState, type TaskState } from './task.js'

const MAX_PAGE = 500
const PAGE_BYTES = 1024 * 1024

export function recordOf(task: Task): TaskRecord {
  const { where, rare } = task
  const { state } = where
  const lease = where instanceof Lease ? where : undefined
  return {
    id: task.id,
    kind: task.kind,
    state,
    priority: task.priority,
    payload: told(task.payload),
    codec: task.codec,
    options: task.options,
    createdAt: task.createdAt,
    since: task.since,
    dueAt: state === 'scheduled' ? rare?.dueAt : undefined,
    deadline: rare?.deadline,
    started: task.started,
    session: lease?.id,
    node: lease?.options.node.id,
    settledToken: settledTokenOf(task),
    attempts: task.attempts,
    reclaims: rare?.reclaims ?? 0,
    after: rare?.after,
    waitsFor: state === 'blocked' ? [...(rare?.open ?? [])] : undefined,
    held: state === 'blocked' && rare?.held === true,
    group:
      rare?.group === undefined ? undefined : { id: rare.group.id, ...(rare.exempt && { exempt: true }) },
    lane: where instanceof Line ? where.lane : undefined,
    result: told(task.result),
    resultCodec: task.resultCodec,
    error: rare?.error,
    reason: rare?.reason,
    message: rare?.message,
    duration: task.duration,
    progress: told(rare?.progress),
    checkpoint: told(rare?.checkpoint),
    logs: rare?.logs === undefined ? undefined : [...rare.logs],
  }
}

export function finalRecordOf(task: Task): FinalRecord {
  return {
    id: task.id,
    state: task.where.state as FinalState,
    result: told(task.result),
    resultCodec: task.resultCodec,
    error: task.rare?.error,
    reason: task.rare?.reason,
    message: task.rare?.message,
    attempts: task.attempts,
    duration: task.duration,
  }
}

/** Of a final task: the token that decided, 0 when no settlement did. Else that of its last accepted settlement. */
export const settledTokenOf = (task: Task): number =>
  isFinal(task.where.state) ? task.token : task.settledToken

/**
 * @param payload the task's
 * @param waited ms from when it was ready to its claim
 */
export function claimedOf(queue: MemoryQueue, task: Task, payload: Encoded, waited: number): Claimed {
  const rare = task.rare
  return {
    id: task.id,
    token: task.token,
    kind: task.kind,
    payload,
    codec: task.codec,
    options: task.options,
    priority: task.priority,
    attempts: task.attempts,
    reclaims: rare === undefined ? 0 : rare.reclaims,
    probation: rare !== undefined && rare.probation,
    waited,
    checkpoint: rare === undefined ? undefined : told(rare.checkpoint),
    parents: rare?.after === undefined ? undefined : parentsOf(queue, rare.after.ids),
    timedOut: rare?.timedOut === true ? true : undefined,
  }
}

/** The parents that are final: all, unless the task was retried after their records had gone. */
function parentsOf(queue: MemoryQueue, ids: readonly string[]): Parent[] {
  const parents: Parent[] = []
  for (const id of ids) {
    const state = queue.tasks.get(id)?.where.state
    if (state !== undefined && isFinal(state)) parents.push({ id, state })
  }
  return parents
}

export function countsOf(queue: MemoryQueue): QueueCounts {
  let running = 0
  let marked = 0
  for (const lease of queue.leases) {
    running += lease.size
    marked += lease.marked
  }
  return {
    pending: queue.pendingCount(),
    scheduled: queue.due.size,
    blocked: queue.need.size,
    running,
    success: queue.done.success.size,
    failed: queue.done.failed.size,
    cancelled: queue.done.cancelled.size,
    skipped: queue.done.skipped.size,
    prefetched: running - marked,
    paused: queue.paused,
  }
}

// ---------------------------------------------------------------------------------------------------- pages

/** One page. Its cursor is the last task's place, so that pages neither skip nor repeat what did not move. */
export function listTasks(queue: MemoryQueue, query: ListQuery): TaskPage {
  const limit = Math.max(1, Math.min(query.limit, MAX_PAGE))
  const from = query.cursor?.split(':').map(Number) ?? [-Infinity, -Infinity]
  const page = new Page(limit + 1, [from[0] ?? -Infinity, from[1] ?? -Infinity])
  const { state, kind, group } = query
  for (const task of tasksIn(queue, state)) {
    if (kind !== undefined && task.kind !== kind) continue
    if (group !== undefined && task.rare?.group?.id !== group) continue
    page.offer(task, placeOf(task, state))
  }
  const tasks: TaskRecord[] = []
  let bytes = 0
  let cursor: string | undefined
  for (const { task, place } of page.entries()) {
    const result = told(task.result)
    bytes += encodedSize(told(task.payload)) + (result === undefined ? 0 : encodedSize(result))
    if (tasks.length === limit || (tasks.length > 0 && bytes > (query.bytes ?? PAGE_BYTES))) {
      return { tasks, cursor }
    }
    tasks.push(recordOf(task))
    cursor = place.join(':')
  }
  return { tasks }
}

type Place = readonly [number, number]

/** Where a task stands in the list of its state: when it will run, or has ended. */
function placeOf(task: Task, state: TaskState): Place {
  if (state === 'scheduled') return [task.rare?.dueAt ?? 0, task.score]
  if (state === 'running') return [task.since, task.score]
  return [isFinal(state) ? -task.sequence : task.score, 0]
}

function tasksIn(queue: MemoryQueue, state: TaskState): Iterable<Task> {
  if (state === 'running') return chained([...queue.leases].map((lease) => lease.oldest))
  if (state === 'blocked') return chained([queue.need.oldest])
  if (isFinal(state)) return ended(queue.done[state].newest)
  return all(queue, state)
}

function* chained(starts: readonly (Task | undefined)[]): Generator<Task, undefined> {
  for (const start of starts) for (let task = start; task !== undefined; task = task.next) yield task
  return undefined
}

function* ended(newest: Task | undefined): Generator<Task, undefined> {
  for (let task = newest; task !== undefined; task = task.prev) yield task
  return undefined
}

/** A look at everything: the orders are not sorted, and a page is wanted seldom. */
function* all(queue: MemoryQueue, state: TaskState): Generator<Task, undefined> {
  for (const task of queue.tasks.values()) if (task.where.state === state) yield task
  return undefined
}

interface Entry {
  readonly task: Task
  readonly place: Place
}

const byPlace = (a: Entry, b: Entry): number => compare(a.place, b.place)
const compare = (a: Place, b: Place): number => a[0] - b[0] || a[1] - b[1]

/** The first tasks after a place out of many, without sorting them all. */
class Page {
  readonly #size: number
  readonly #after: Place
  #entries: Entry[] = []
  /** What is not before this place cannot be on the page any more. */
  #bound: Place = [Infinity, Infinity]

  constructor(size: number, after: Place) {
    this.#size = size
    this.#after = after
  }

  offer(task: Task, place: Place): void {
    if (compare(place, this.#after) <= 0 || compare(place, this.#bound) >= 0) return
    this.#entries.push({ task, place })
    if (this.#entries.length < 2 * this.#size) return
    this.#entries = this.entries()
    this.#bound = (this.#entries[this.#size - 1] as Entry).place
  }

  entries(): Entry[] {
    return this.#entries.sort(byPlace).slice(0, this.#size)
  }
}

// --------------------------------------------------------------------------------------------------- errors

/** Failed tasks by the fingerprint of their error; those without an error by their reason. */
export function errorGroups(queue: MemoryQueue, limit: number): ErrorGroup[] {
  const groups = new Map<string, { -readonly [K in keyof ErrorGroup]: ErrorGroup[K] }>()
  for (let task = queue.done.failed.newest; task !== undefined; task = task.prev) {
    const fingerprint = task.rare?.fingerprint ?? task.rare?.reason ?? ''
    const group = groups.get(fingerprint)
    if (group !== undefined) group.count++
    else
      groups.set(fingerprint, {
        fingerprint,
        count: 1,
        id: task.id,
        error: task.rare?.error ?? '',
        lastAt: task.since,
      })
  }
  return [...groups.values()].sort((a, b) => b.count - a.count || b.lastAt - a.lastAt).slice(0, limit)
}
