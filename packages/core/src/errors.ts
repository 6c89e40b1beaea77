/**
 * Every error that NeoTask raises, with its stable code.
 *
 * A caller branches on `error.code`, or on one of the few subclasses below; messages may be reworded at any
 * time, codes may not. `docs/reference/errors.md` mirrors this file.
 */

/** The stable codes. A later tier adds its own; none is ever renamed or reused. */
export type ErrorCode =
  | 'OPTION_INVALID'
  | 'VALIDATION_FAILED'
  | 'PAYLOAD_INVALID'
  | 'PAYLOAD_TOO_LARGE'
  | 'QUEUE_FULL'
  | 'QUOTA_EXCEEDED'
  | 'BACKPRESSURE'
  | 'TASK_NOT_FOUND'
  | 'TASK_FAILED'
  | 'TASK_CANCELLED'
  | 'TASK_SKIPPED'
  | 'TASK_TIMEOUT'
  | 'TASK_EXPIRED'
  | 'TASK_REMOVED'
  | 'TASK_LOST'
  | 'RESULT_EXPIRED'
  | 'DEPENDENCY_FAILED'
  | 'DEPENDENCY_NOT_FOUND'
  | 'GROUP_CANCELLED'
  | 'POISON'
  | 'THREAD_CRASHED'
  | 'ILLEGAL_STATE'
  | 'WAIT_TIMEOUT'
  | 'LEASE_LOST'
  | 'SHUTDOWN'
  | 'POOL_CLOSED'
  | 'SERVICE_FAILED'
  | 'STORAGE_UNAVAILABLE'
  | 'STORAGE_FORMAT'
  | 'NOT_REPLICATED'
  | 'SCHEDULE_NOT_FOUND'
  | 'CRON_INVALID'
  | 'ZONE_INVALID'
  | 'INTERVAL_INVALID'
  | 'DATE_INVALID'
  | 'WINDOW_INVALID'

export interface NeoTaskErrorOptions {
  /** What caused it; kept as the standard `error.cause`. */
  cause?: unknown
  /** Whether the same call may succeed later without a change. Default: false. */
  retryable?: boolean
  /** The task that the error is about, if there is one. */
  taskId?: string
  /**
   * True when the call may have taken effect although it failed (its reply was lost). Repeating it with the
   * same task id is safe.
   */
  uncertain?: boolean
}

/** The one error class. */
export class NeoTaskError extends Error {
  readonly code: ErrorCode
  /** Whether the same call may succeed later without a change. */
  readonly retryable: boolean
  /** Whether the call may have taken effect although it failed. */
  readonly uncertain: boolean
  /** The task that the error is about, if there is one. */
  readonly taskId: string | undefined

  constructor(code: ErrorCode, message: string, options: NeoTaskErrorOptions = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.code = code
    this.retryable = options.retryable ?? false
    this.uncertain = options.uncertain ?? false
    this.taskId = options.taskId
  }

  override get name(): string {
    return this.constructor.name
  }
}

/** A task reached `failed`; `cause` is what its handler threw, rebuilt from what was stored. */
export class TaskFailedError extends NeoTaskError {}

/** A task reached `cancelled`; the code says why (`TASK_CANCELLED`, `TASK_EXPIRED`, `DEPENDENCY_FAILED` …). */
export class TaskCancelledError extends NeoTaskError {}

/** `waitForResult` reached its own timeout; the task goes on. */
export class WaitTimeoutError extends NeoTaskError {}

/** The queue holds `maxQueueSize` tasks and `overflow` is `'reject'`. */
export class QueueFullError extends NeoTaskError {}

/** A quota of the tenant is used up. */
export class QuotaExceededError extends NeoTaskError {}

/** Data that cannot be stored: not encodable, or larger than `maxPayload`. */
export class PayloadError extends NeoTaskError {}

/** The storage did not answer, or refused. `uncertain` says whether the call may have taken effect. */
export class StorageUnavailableError extends NeoTaskError {}

/** A value did not fit: an option, or a task's input against its schema. */
export class ValidationError extends NeoTaskError {}

/** Thrown by a handler: fail at once, whatever the retry policy says. */
export class NonRetryableError extends Error {
  override readonly name = 'NonRetryableError'
}

/** Thrown by a handler: run again after `delay`, without using up an attempt. */
export class RetryLaterError extends Error {
  override readonly name = 'RetryLaterError'
  /** A duration: ms, or text such as `'30s'`. */
  readonly delay: number | string

  constructor(delay: number | string, message = `run again after ${String(delay)}`, options?: ErrorOptions) {
    super(message, options)
    this.delay = delay
  }
}

/**
 * An option that does not fit: names it, and says what was expected and what came.
 *
 * @param option the path as the caller wrote it, such as `retry.limit`
 * @param expected in words, such as `an integer from 0 to 1000`
 * @param got the value itself; shown shortened
 */
export function optionError(option: string, expected: string, got: unknown): ValidationError {
  return new ValidationError('OPTION_INVALID', `${option}: expected ${expected}, got ${show(got)}`)
}

/** A value in few words, for messages; never throws, never longer than about 80 characters. */
export function show(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}...` : value)
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'function') return value.name ? `function ${value.name}` : 'a function'
  if (typeof value === 'symbol') return 'a symbol'
  if (value === null || typeof value !== 'object') return String(value)
  if (Array.isArray(value)) return `an array of ${value.length}`
  return 'an object'
}
