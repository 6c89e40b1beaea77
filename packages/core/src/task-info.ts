/** What a caller sees of a task: the storage's record, decoded. */
import type { Codec } from './codec.js'
import { StoredError, type Failure } from './failure.js'
import { parseStored } from './kinds.js'
import type { Dependencies, Encoded, TaskRecord } from './storage.js'
import type { TaskState } from './task.js'

/** Times are ms since 1970. */
export interface TaskInfo<Data = unknown, Result = unknown> {
  id: string
  /** The name of its definition; empty for the pool's executor. */
  name: string
  state: TaskState
  priority: number
  data: Data
  /** Success only. */
  result: Result | undefined
  /** What the last attempt threw. */
  error: StoredError | undefined
  /** Why it was cancelled, skipped or failed without an attempt of its own: a code such as `TASK_EXPIRED`. */
  reason: string | undefined
  /** What the caller of `cancel` said. */
  message: string | undefined
  createdAt: number
  /** Since when it is where it is. */
  since: number
  /** Scheduled only. */
  dueAt: number | undefined
  /** When it expires, if it has not started by then. */
  expiresAt: number | undefined
  /** Whether its handler is known to have been called (running only). */
  started: boolean
  /** The node that holds it (running only). */
  node: string | undefined
  /** Attempts that ended. */
  attempts: number
  /** How often it was taken back from a lost node after it had started. */
  reclaims: number
  after: Dependencies | undefined
  /** Parents that have not ended (blocked only). */
  waitsFor: readonly string[]
  /** Waits for `complete`. */
  held: boolean
  group: string | undefined
  tags: readonly string[]
  /** ms of the last attempt that was settled. */
  duration: number | undefined
  progress: unknown
  checkpoint: unknown
  logs: readonly string[]
}

export function taskInfo(record: TaskRecord, codec: Codec): TaskInfo {
  const decode = (encoded: Encoded | undefined, made = record.codec): unknown =>
    encoded === undefined || made !== codec.id ? undefined : codec.decode(encoded)
  return {
    id: record.id,
    name: record.kind,
    state: record.state,
    priority: record.priority,
    data: decode(record.payload),
    result: decode(record.result, record.resultCodec),
    error: record.error === undefined ? undefined : new StoredError(JSON.parse(record.error) as Failure),
    reason: record.reason,
    message: record.message,
    createdAt: record.createdAt,
    since: record.since,
    dueAt: record.dueAt,
    expiresAt: record.deadline,
    started: record.started,
    node: record.node,
    attempts: record.attempts,
    reclaims: record.reclaims,
    after: record.after,
    waitsFor: record.waitsFor ?? [],
    held: record.held,
    group: record.group?.id,
    tags: parseStored(record.options).tags ?? [],
    duration: record.duration,
    progress: decode(record.progress),
    checkpoint: decode(record.checkpoint),
    logs: record.logs ?? [],
  }
}
