/** For tests: of storages, and of whatever is built on one. */
export { storageSuite } from './storage-suite.js'
export type { StorageSuiteOptions } from './storage-suite.js'
export type { Opened } from './harness.js'
export { ManualClock } from './manual-clock.js'
export type { ManualClockOptions } from './manual-clock.js'
