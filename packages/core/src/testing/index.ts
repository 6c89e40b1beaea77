/** For tests: of applications that submit tasks, and of storages. Needs no test runner, and works with each. */
export { createTestPool } from './test-pool.js'
export type { TestPool, TestPoolOptions } from './test-pool.js'
export type { Expected, PartialData, SubmittedOptions, SubmittedTask } from './submitted-tasks.js'
export { storageSuite } from './storage-suite.js'
export type { StorageSuiteOptions } from './storage-suite.js'
export type { Opened } from './harness.js'
export { ManualClock } from './manual-clock.js'
export type { ManualClockOptions } from './manual-clock.js'
export { FAULT_KINDS, FlakyStorage } from './flaky-storage.js'
export type {
  ArgumentsOf,
  Fault,
  FaultKind,
  FlakyStorageOptions,
  RecordedCall,
  ReplyOf,
  StorageCall,
  Trap,
} from './flaky-storage.js'
export { RandomFailure, replayRun, runRandomSuite } from './random-suite.js'
export type { RandomReport, RandomSuiteOptions } from './random-suite.js'
export type { Command } from './random-commands.js'
