/** The suites by name. A row is one question that is asked of several subjects. */
import { memoryRows } from './memory.js'
import { redisRows } from './redis.js'
import { scheduleRows } from './schedule.js'
import { sqliteRows } from './sqlite.js'
import { threadRows } from './threads.js'

export interface Row {
  /** What is measured, with its conditions. */
  readonly name: string
  readonly unit: string
  /** Whether a larger figure is the better one: ratios are turned so that more than 1 always speaks for NeoTask. */
  readonly better: 'more' | 'less'
  /** What is measured, each in a fresh process. The first is NeoTask. */
  readonly subjects: Readonly<Record<string, () => Promise<number>>>
}

export const SUITES: Readonly<Record<string, { readonly rows: readonly Row[] }>> = {
  memory: { rows: memoryRows },
  sqlite: { rows: sqliteRows },
  redis: { rows: redisRows },
  schedule: { rows: scheduleRows },
  threads: { rows: threadRows },
}
