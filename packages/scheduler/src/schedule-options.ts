/** What a user gives for a schedule, and one check for each of it: a bad value is refused by its name, and nothing stored. */
import {
  optionError,
  parseDuration,
  ValidationError,
  type Duration,
  type ErrorCode,
  type RetryOptions,
  type RetrySetting,
} from '@neotask/core'
import { checkInstant, checkInteger, checkKeys, checkObject, oneOf } from '@neotask/core/tier'
import { parseCron } from './cron.js'
import { MOST_AT_ONCE } from './policies.js'
import { OVERLAPS, type Definition, type Missed, type Overlap, type TaskOptions } from './schedule.js'
import { LONGEST_INTERVAL, SHORTEST_INTERVAL, Slots, type Timing } from './timing.js'

export interface ScheduleOptions {
  /**
   * 1 to 128 characters of `A-Z a-z 0-9 . _ : @ / + = -`. Submitting the same id and definition again changes nothing;
   * another definition takes effect from the next slot. Default: generated, so that each submit is another schedule.
   */
  id?: string | undefined
  /** When the task of the slot before has not ended: see the guide. Default: `'allow'`. */
  overlap?: Overlap | undefined
  /** Slots for which nobody was there: none, the latest, or the latest so many (at most 1 000). Default: `'fireOnce'`. */
  missed?: Missed | undefined
  /**
   * A slot that could not be fired within this time is missed. Default: the time until the next slot, at least 1 s and at
   * most 30 s. Example: `'10m'`.
   */
  tolerance?: Duration | undefined
  /** Each slot is put off by less than this, always by the same. Less than the time between two slots. Default: 0. */
  jitter?: Duration | undefined
  /** No slot before this instant. The slots of an interval begin with it. */
  start?: Date | number | undefined
  /** No slot after this instant. */
  end?: Date | number | undefined
  /** It ends with so many fired slots. Default: no limit. */
  maxRuns?: number | undefined
  /** How many slots its history remembers, 0 to 1 000. Default: 25. */
  history?: number | undefined
  /** Of its tasks, 0 to 1 000, smaller first. Default: the definition's, else 2. */
  priority?: number | undefined
  /** Of its tasks. Default: the definition's, else the pool's. */
  retry?: RetrySetting | undefined
  /** Of its tasks, for each attempt. Default: the definition's, else the pool's. */
  timeout?: Duration | undefined
  /** Of its tasks. `list` finds the schedule by them too. */
  tags?: readonly string[] | undefined
}

export interface CronOptions extends ScheduleOptions {
  /** The IANA name of the zone in whose local time the expression is meant. Default: `'UTC'`. Example: `'Europe/Berlin'`. */
  zone?: string | undefined
}

/** When a schedule fires, as it was given. */
export type Timetable =
  { readonly every: Duration } | { readonly cron: string | undefined; readonly zone?: string | undefined }

/** A timetable in the words of a user: an interval, or an expression and its zone. */
export interface TimetableNames {
  readonly every?: Duration | undefined
  readonly expression?: string | undefined
  readonly zone?: string | undefined
}

/** A definition but for its task. */
export type Rules = Omit<Definition, 'task'>

/** Options of a schedule but for its id. */
export const SCHEDULE_KEYS: readonly Exclude<keyof ScheduleOptions, 'id'>[] = [
  ...(['overlap', 'missed', 'tolerance', 'jitter', 'start', 'end', 'maxRuns', 'history'] as const),
  ...(['priority', 'retry', 'timeout', 'tags'] as const),
]

/** Those of its tasks. */
export const TASK_KEYS: readonly (keyof TaskOptions)[] = ['priority', 'retry', 'timeout', 'tags']

const MISSED = "'skip', 'fireOnce', or { catchUp: 10 }"
const MOST_REMEMBERED = 1000
const REMEMBERED = 25
/** Slots among which the shortest time between two is looked for. */
const SAMPLE = 25

/** Gives what a check refuses a code of its own. */
function withCode<T>(code: ErrorCode, check: () => T): T {
  try {
    return check()
  } catch (error) {
    if (error instanceof ValidationError && error.code === 'OPTION_INVALID')
      throw new ValidationError(code, error.message)
    throw error
  }
}

/** An instant in ms. @throws ValidationError `DATE_INVALID` */
export function checkDate(value: unknown, option: string): number {
  return withCode('DATE_INVALID', () => checkInstant(value, option))
}

/** An interval in ms. @throws ValidationError `INTERVAL_INVALID` */
function checkInterval(value: unknown, option: string): number {
  const bounds = { min: SHORTEST_INTERVAL, max: LONGEST_INTERVAL }
  return withCode('INTERVAL_INVALID', () =>
    checkInteger(parseDuration(value, option, bounds), option, SHORTEST_INTERVAL),
  )
}

/**
 * What was given, read once, so that what was checked is what is used. What is `undefined` was not given.
 *
 * @param keys that may be given
 * @param where what stands before a key in messages
 * @throws ValidationError `OPTION_INVALID`
 */
export function readOptions<T extends object, Key extends keyof T & string>(
  value: T,
  keys: readonly Key[],
  name: string,
  where = '',
  expected?: string,
): Pick<T, Key> {
  checkObject(value, name, expected)
  checkKeys(value, keys, where)
  const read = keys.map((key) => [key, value[key]] as const)
  return Object.fromEntries(read.filter(([, given]) => given !== undefined)) as Pick<T, Key>
}

/**
 * The timetable by these names.
 *
 * @param where what stands before a name in messages
 * @param before what it is, where they say nothing
 * @throws ValidationError `OPTION_INVALID` for an expression or a zone beside an interval
 */
export function timetableOf(
  { every, expression, zone }: TimetableNames,
  where: string,
  before: Pick<Definition, 'every' | 'cron' | 'zone'> = {},
): Timetable {
  if (every !== undefined && expression !== undefined) {
    throw optionError(`${where}every`, 'no expression beside it', every)
  }
  if (every === undefined && (expression !== undefined || before.every === undefined)) {
    return {
      cron: expression === undefined ? before.cron : expression,
      zone: zone === undefined ? before.zone : zone,
    }
  }
  if (zone !== undefined) throw optionError(`${where}zone`, 'an expression beside it', zone)
  return { every: every === undefined ? (before.every as number) : every }
}

/**
 * The rules of a schedule.
 *
 * @throws ValidationError `OPTION_INVALID` `CRON_INVALID` `ZONE_INVALID` `INTERVAL_INVALID` `DATE_INVALID` `WINDOW_INVALID`
 */
export function resolveRules(timetable: Timetable, options: Omit<ScheduleOptions, 'id'>): Rules {
  const {
    overlap = 'allow',
    missed = 'fireOnce',
    tolerance,
    jitter = 0,
    maxRuns,
    history = REMEMBERED,
  } = options
  const start = options.start === undefined ? undefined : checkDate(options.start, 'start')
  const end = options.end === undefined ? undefined : checkDate(options.end, 'end')
  if (start !== undefined && end !== undefined && end <= start)
    throw windowError('end', 'later than start', end)
  const rules: Rules = {
    ...resolveTimetable(timetable),
    submit: taskOptions(options),
    start,
    end,
    maxRuns: maxRuns === undefined ? undefined : checkInteger(maxRuns, 'maxRuns', 1),
    overlap: oneOf(overlap, 'overlap', OVERLAPS),
    missed: checkMissed(missed),
    jitter: parseDuration(jitter, 'jitter'),
    tolerance: tolerance === undefined ? undefined : parseDuration(tolerance, 'tolerance'),
    history: checkInteger(history, 'history', 0, MOST_REMEMBERED),
  }
  return rules
}

function resolveTimetable(timetable: Timetable): Pick<Rules, 'every' | 'cron' | 'zone'> {
  if ('every' in timetable) return { every: checkInterval(timetable.every, 'every') }
  const { expression, zone } = parseCron(timetable.cron as string, timetable.zone)
  return { cron: expression, zone }
}

/**
 * What is given for the tasks, with durations in ms, so that it does not matter how they were written. All else is checked
 * when a task is prepared.
 */
function taskOptions({ priority, retry, timeout, tags }: ScheduleOptions): TaskOptions {
  return {
    priority,
    retry: typeof retry === 'object' ? inMs(retry) : retry,
    timeout: timeout === undefined ? undefined : parseDuration(timeout, 'timeout', { min: 1 }),
    // The definition is kept, and the caller's array may change.
    tags: Array.isArray(tags) ? [...(tags as readonly string[])] : tags,
  }
}

function inMs(retry: RetryOptions): RetryOptions {
  checkObject(retry, 'retry', 'an object of retry options, a number of retries, or false')
  const { delay, maxDelay } = retry
  return {
    ...retry,
    ...(delay !== undefined && { delay: parseDuration(delay, 'retry.delay') }),
    ...(maxDelay !== undefined && { maxDelay: parseDuration(maxDelay, 'retry.maxDelay') }),
  }
}

function checkMissed(value: unknown): Missed {
  if (value === 'skip' || value === 'fireOnce') return value
  checkObject(value, 'missed', MISSED)
  checkKeys(value as object, ['catchUp'], 'missed.')
  return { catchUp: checkInteger((value as { catchUp: unknown }).catchUp, 'missed.catchUp', 1, MOST_AT_ONCE) }
}

/**
 * The first slot of the rules.
 *
 * @throws ValidationError `WINDOW_INVALID` when there is none, `OPTION_INVALID` for a jitter that is too long
 */
export function firstSlot(rules: Rules, timing: Timing, now: number): number {
  const slots = new Slots(timing, rules)
  const sample = slots.preview(now, rules.jitter > 0 ? SAMPLE : 1)
  const [first] = sample
  if (first === undefined && rules.end === undefined) {
    throw windowError(
      'start',
      'a slot after it, which for an expression is before the year 3000',
      rules.start,
    )
  }
  if (first === undefined) throw windowError('end', 'a slot before it', rules.end)
  for (const [index, slot] of sample.entries()) {
    const gap = (sample[index + 1] ?? Infinity) - slot
    if (rules.jitter < gap && (rules.every === undefined || rules.jitter < rules.every)) continue
    throw new ValidationError(
      'OPTION_INVALID',
      `jitter: expected less than the time between two slots (${Math.min(gap, rules.every ?? gap)} ms), got ${rules.jitter} ms`,
    )
  }
  return first
}

/** @param got an instant, shown as one */
export function windowError(option: string, expected: string, got: number | undefined): ValidationError {
  const shown = got === undefined ? 'none' : new Date(got).toISOString()
  return new ValidationError('WINDOW_INVALID', `${option}: expected ${expected}, got ${shown}`)
}
