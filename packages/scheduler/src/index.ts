export { TaskScheduler } from './task-scheduler.js'
export type {
  PreviewOf,
  ScheduleChanges,
  ScheduleId,
  ScheduleInfo,
  ScheduleList,
  ScheduleListOptions,
  SlotInfo,
  TaskSubmitOptions,
} from './task-scheduler.js'
export type { CronOptions, ScheduleOptions } from './schedule-options.js'
export type { Missed, Overlap, SkipReason } from './schedule.js'
export { parseCron } from './cron.js'
export type { Cron } from './cron.js'
export { describe } from './describe.js'
export type { Locale } from './describe.js'
