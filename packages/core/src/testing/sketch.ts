/** Plain values for the cases of the storage suite: tasks, ends of attempts, times. */
import { CHANGED, isRefusal } from '../storage.js'
import type { EnqueueOutcome, Mark, NewTask, Retention, Settlement } from '../storage.js'

/** A task as the cases write it: only what matters. */
export type Sketch = string | (Partial<NewTask> & { readonly id: string })

export const SECOND = 1000
export const MINUTE = 60_000
export const HOUR = 3_600_000
export const DAY = 86_400_000

/** The `ttl` of sessions that are to be lost: the shortest permitted. */
export const SHORT_TTL = 1000

/** Keeps everything for longer than any case lasts. */
export const KEEP: Retention = {
  success: { age: 100 * DAY, count: 1_000_000 },
  failed: { age: 100 * DAY, count: 1_000_000 },
}

/** The kinds that a node serves unless a case says otherwise. */
export const KIND = 'job'

export function sketch(task: Sketch): NewTask {
  const given = typeof task === 'string' ? { id: task } : task
  return { kind: KIND, payload: `payload of ${given.id}`, codec: 'json', priority: 2, ...given }
}

/** `count` ids that sort in their order. */
export function ids(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}${String(index).padStart(4, '0')}`)
}

export function idsOf(tasks: readonly { readonly id: string }[]): string[] {
  return tasks.map((task) => task.id)
}

/** The same without the properties that are undefined: a driver may leave them out or set them so. */
export function tidy(value: object | string | undefined): object | string | undefined {
  if (typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).filter(([, property]) => property !== undefined))
}

/** A refused unit's code, the task that took it up, or the outcome itself. */
export function codeOf(outcome: EnqueueOutcome | undefined): string | undefined {
  if (typeof outcome !== 'object') return outcome
  return isRefusal(outcome) ? outcome.code : `into ${outcome.into}`
}

export type Outcome = Settlement['outcome']

const ENDINGS: Readonly<Record<Outcome, object>> = {
  success: { outcome: 'success', result: '"done"', codec: 'json', duration: 5 },
  failed: { outcome: 'failed', error: '{"message":"broken"}', fingerprint: 'broken', duration: 5 },
  retry: { outcome: 'retry', error: '{"message":"again"}', in: HOUR },
  cancelled: { outcome: 'cancelled', reason: 'TASK_CANCELLED' },
  skipped: { outcome: 'skipped', reason: 'TASK_SKIPPED' },
  released: { outcome: 'released' },
  suspended: { outcome: 'suspended' },
}

export const OUTCOMES = Object.keys(ENDINGS) as Outcome[]

/** How the attempt with this mark ended, with plain values for whatever `details` leaves out. */
export function ending(mark: Mark, outcome: Outcome, details: Partial<Settlement> | object = {}): Settlement {
  const until = outcome === 'suspended' && !('after' in details) ? { until: HOUR } : {}
  return { ...ENDINGS[outcome], ...until, ...details, id: mark.id, token: mark.token } as Settlement
}

/** Whether one of the messages names the id, or says that anything may have changed. */
export function names(messages: readonly string[], id: string): boolean {
  return messages.some((message) => message === CHANGED || message.split(' ').includes(id))
}
