export { TaskPool } from './task-pool.js'
export type {
  BatchItem,
  CloseOptions,
  CloseReport,
  Health,
  ListOptions,
  TaskId,
  TaskList,
  TaskPoolOptions,
} from './task-pool.js'
export { defineTask, TaskDefinition } from './define-task.js'
export type { Handler, HandlerFile, TaskDefaults, TaskSpec } from './define-task.js'
export { AbortReason } from './task-context.js'
export type { AbortKind, TaskContext } from './task-context.js'
export type { DebounceOptions, Logger, PoolOptions, SubmitOptions } from './options.js'
export type { PrefetchOptions, PrefetchStrategy } from './prefetch.js'
export type { ThreadOptions } from './thread-options.js'
export type { RetryOptions, RetrySetting } from './retry-policy.js'
export type { PoolEvents } from './pool-events.js'
export type { ClusterEvent, ClusterEventOf } from './cluster-events.js'
export type { EventsOptions, StreamedEvent } from './event-bus.js'
export type { LatencySummary, PoolStats } from './pool-stats.js'
export type { Explanation, ReasonCode } from './explain.js'
export type { LoadLimitOptions, Overload } from './load-limit.js'
export type { NodeStatus } from './node-registry.js'
export type { TaskInfo } from './task-info.js'
export type { Lock, PoolLocks } from './locks.js'
export type { Service } from './service.js'
export { checkPut } from './checks.js'
export { openStorage } from './open-storage.js'
export { memoryStorage } from './memory-storage.js'
export { jsonCodec } from './codec.js'
export type { Codec } from './codec.js'
export { systemClock } from './clock.js'
export type { Clock, Timer, TimerOptions } from './clock.js'
export { parseDuration, formatDuration } from './duration.js'
export type { Duration } from './duration.js'
export { StoredError } from './failure.js'
export type { Failure } from './failure.js'
export {
  isFinal,
  isGeneratedId,
  isStorableDuration,
  isStorableId,
  isStorableInstant,
  MAX_PRIORITY,
  OPERATIONS,
  Priority,
  TASK_STATES,
  TRANSITIONS,
} from './task.js'
export type { FinalState, Operation, TakenReason, TaskState } from './task.js'
export * from './errors.js'
export * from './storage.js'
