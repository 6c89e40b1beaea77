/** The events of a pool: what happened in this process, by reference, made only when somebody listens. */
import type { StoredError } from './failure.js'
import type { Overload } from './load-limit.js'

export interface PoolEvents {
  /** A task of this pool is stored. */
  'task.created': { id: string; name: string; data: unknown }
  /** A handler is about to be called. */
  'task.started': { id: string; name: string; node: string; attempt: number }
  'task.progress': { id: string; name: string; progress: unknown }
  /** The result was accepted; `duration` in ms. */
  'task.completed': { id: string; name: string; result: unknown; duration: number }
  /** The last attempt failed. */
  'task.failed': { id: string; name: string; error: StoredError; attempts: number }
  'task.cancelled': { id: string; reason: string | undefined }
  /** An attempt failed and another follows in `delay` ms; `retryCount` is 1 before the first retry. */
  'task.retry': { id: string; name: string; retryCount: number; delay: number; error: StoredError }
  'task.removed': { id: string }
  /** This node is over its load limit: it claims no more, and gave back what it had not started. */
  'node.overloaded': { node: string } & Overload
  /** It claims again, `duration` ms later. */
  'node.recovered': { node: string; duration: number }
  /** The slot of a schedule was fired by this process; `slot` in ms since 1970. */
  'schedule.fired': { id: string; slot: number; taskId: string }
  /** The slot of a schedule was left out; `reason` as its history gives it. */
  'schedule.skipped': { id: string; slot: number; reason: string }
  /** Something went wrong outside any call: the storage failed, a listener threw, a service died. */
  'pool.error': { error: unknown; while: string }
}
