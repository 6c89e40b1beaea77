/**
 * What a cron expression says, in an order that can be put into words, before any language: a time of day (`Clock`)
 * and the days it holds for (`Days`). Numbers count, not how they were written: `0,30` and `*\/30` are the same.
 */
import type { CronField, CronFields, SpecialDay } from './cron-syntax.js'

/** Numbers of a field: all, one, evenly through the whole hour or day by `step`, or as listed. */
export interface Series {
  readonly kind: 'all' | 'one' | 'every' | 'listed'
  readonly step: number
  readonly values: readonly number[]
}

/** Numbers for a list: `[9, 17]` is a run of at least three; `gap` stands for members left out of an even row. */
export type Part = number | readonly [first: number, last: number] | 'gap'

export type Clock =
  /** A few times, such as `09:00`. */
  | { readonly kind: 'times'; readonly times: readonly string[] }
  /** One time in each of an even row of hours. */
  | { readonly kind: 'hours'; readonly step: number; readonly first: string; readonly last: string }
  | { readonly kind: 'series'; readonly second: Series; readonly minute: Series; readonly hour: Series }

/** Which days: each list is undefined where the field lets every day through. */
export interface Days {
  readonly month: readonly Part[] | undefined
  readonly day: DayList | undefined
  /** Monday is 1, Sunday 7. */
  readonly weekday: DayList | undefined
  readonly join: 'either' | 'both'
}

export interface DayList {
  readonly parts: readonly Part[]
  readonly special: readonly SpecialDay[]
}

/** So many times are told one by one. */
const FEW = 4
/** Hours of one time each, likewise. */
const FEW_HOURS = 12

export function clockOf({ second, minute, hour }: CronFields): Clock {
  const [s, m] = [second.values[0] ?? 0, minute.values[0] ?? 0]
  const times = minute.values.length * hour.values.length
  if (second.values.length === 1 && !hour.all) {
    const step = evenStep(hour.values)
    if (minute.values.length === 1 && step !== undefined) {
      const last = hour.values.at(-1) ?? 0
      return { kind: 'hours', step, first: time(hour.values[0] ?? 0, m, s), last: time(last, m, s) }
    }
    if (times <= FEW || (minute.values.length === 1 && times <= FEW_HOURS)) {
      const all = hour.values.flatMap((h) => minute.values.map((each) => time(h, each, s)))
      return { kind: 'times', times: all }
    }
  }
  return { kind: 'series', second: series(second, 60), minute: series(minute, 60), hour: series(hour, 24) }
}

export function daysOf({ day, month, weekday, days }: CronFields): Days {
  const mondayFirst = weekday.values.map((number) => number || 7).sort((a, b) => a - b)
  // Either of two, one of which is every day, is every day.
  const free = days === 'either' && (day.all || weekday.all)
  return {
    month: month.all ? undefined : parts(month.values),
    day: day.all || free ? undefined : { parts: parts(day.values), special: day.special },
    weekday: weekday.all || free ? undefined : { parts: parts(mondayFirst), special: weekday.special },
    join: days,
  }
}

/** `9:05` as `09:05`; seconds only where there are some. */
export function time(hour: number, minute: number, second = 0): string {
  const two = (number: number): string => String(number).padStart(2, '0')
  return `${two(hour)}:${two(minute)}${second === 0 ? '' : `:${two(second)}`}`
}

/** Runs of three and more become one part; of a long even row, the first three and the last are left. */
export function parts(values: readonly number[]): Part[] {
  const step = evenStep(values)
  if (step !== undefined && step > 1 && values.length > 6)
    return [...values.slice(0, 3), 'gap', values.at(-1) ?? 0]
  const found: Part[] = []
  for (let from = 0; from < values.length;) {
    let to = from
    while (values[to + 1] === (values[to] ?? 0) + 1) to++
    const [first = 0, last = 0] = [values[from], values[to]]
    if (to - from >= 2) found.push([first, last])
    else for (let number = first; number <= last; number++) found.push(number)
    from = to + 1
  }
  return found
}

/** The step of an even row of at least three. */
function evenStep(values: readonly number[]): number | undefined {
  const [first = 0, second = 0] = values
  const step = second - first
  return values.length > 2 && values.every((value, i) => value === first + i * step) ? step : undefined
}

function series({ values, all }: CronField, size: number): Series {
  const [first = 0, second = first] = values
  const step = second - first
  if (all) return { kind: 'all', step, values }
  if (values.length === 1) return { kind: 'one', step, values }
  const whole = step * values.length === size && values.every((value, i) => value === i * step)
  return { kind: whole ? 'every' : 'listed', step, values }
}
