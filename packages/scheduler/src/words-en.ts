/** A cron expression in English. */
import { parts, time, type Clock, type DayList, type Days, type Part, type Series } from './cron-outline.js'
import type { SpecialDay } from './cron-syntax.js'

const MONTHS = 'January February March April May June July August September October November December'.split(
  ' ',
)
const WEEKDAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split(' ')
const NTH = ['first', 'second', 'third', 'fourth', 'fifth']

export function english(clock: Clock, days: Days): string {
  const text = `${clockWords(clock)}${dayWords(days, clock.kind === 'times')}`
  return text.charAt(0).toUpperCase() + text.slice(1)
}

function clockWords(clock: Clock): string {
  switch (clock.kind) {
    case 'times':
      return `at ${list(clock.times)}`
    case 'hours':
      return `${every(clock.step, 'hour')} from ${clock.first} to ${clock.last}`
    case 'series':
      return seriesWords(clock)
  }
}

function seriesWords({ second, minute, hour }: Clock & { kind: 'series' }): string {
  const [s = 0, m = 0, h = 0] = [second.values[0], minute.values[0], hour.values[0]]
  if (second.kind !== 'one') {
    const head = second.kind === 'listed' ? `at ${members(second, 'second')}` : every(second.step, 'second')
    if (minute.kind === 'all' && hour.kind === 'all')
      return second.kind === 'listed' ? `${head} of every minute` : head
    if (minute.kind === 'all') return `${head}${hourScope(hour, 59)}`
    if (minute.kind === 'one' && hour.kind === 'one') return `${head} of the minute ${time(h, m)}`
    return `${head} of ${members(minute, 'minute')}${ofHours(hour)}`
  }
  const atSecond = s === 0 ? '' : ` at second ${s}`
  if (minute.kind === 'all' || minute.kind === 'every') {
    return `${every(minute.step, 'minute')}${hourScope(hour, minute.values.at(-1) ?? 0)}${atSecond}`
  }
  if (minute.kind === 'one' && hour.kind === 'all') {
    return m === 0 ? `every hour${atSecond}` : `every hour at minute ${m}${s === 0 ? '' : ` and second ${s}`}`
  }
  return `at ${members(minute, 'minute')}${ofHours(hour)}${atSecond && `,${atSecond}`}`
}

function every(step: number, unit: string): string {
  return step === 1 ? `every ${unit}` : `every ${step} ${unit}s`
}

function members(series: Series, unit: string): string {
  return `${unit}${series.kind === 'one' ? '' : 's'} ${numbers(parts(series.values))}`
}

function ofHours(hour: Series): string {
  return hour.kind === 'all' ? ' of every hour' : ` of ${members(hour, 'hour')}`
}

/** For something that goes on through the hours. */
function hourScope(hour: Series, lastMinute: number): string {
  if (hour.kind === 'all') return ''
  const [run, ...others] = parts(hour.values)
  if (typeof run === 'number' && others.length === 0)
    return ` from ${time(run, 0)} to ${time(run, lastMinute)}`
  if (typeof run === 'object' && others.length === 0)
    return ` from ${time(run[0], 0)} to ${time(run[1], lastMinute)}`
  return ` in ${members(hour, 'hour')}`
}

function dayWords({ month, day, weekday, join }: Days, isDaily: boolean): string {
  const months = month && numbers(month, MONTHS)
  const inMonths = month && `${isRun(month) ? 'from' : 'in'} ${months}`
  const ofMonth = `of ${months ?? 'the month'}`
  if (day !== undefined && weekday !== undefined) {
    const first = `${onDays(day)} of the month`
    const within = inMonths === undefined ? '' : `, ${inMonths}`
    if (join === 'either') return ` ${first} or ${onWeekdays(weekday, 'of the month')}${within}`
    return ` ${first}, if it is ${list([...names(weekday), ...specials(weekday)], 'or')}${within}`
  }
  if (day !== undefined) return ` ${onDays(day)} ${ofMonth}`
  const after = inMonths === undefined ? '' : ` ${inMonths}`
  if (weekday === undefined) return `${isDaily ? ' every day' : ''}${after}`
  if (weekday.special.length > 0) return ` ${onWeekdays(weekday, ofMonth)}`
  return isRun(weekday.parts)
    ? `, ${list(names(weekday))}${after}`
    : ` ${onWeekdays(weekday, ofMonth)}${after}`
}

function onDays(day: DayList): string {
  const many = day.parts.length > 1 || isRun(day.parts)
  const plain = day.parts.length > 0 ? [`day${many ? 's' : ''} ${numbers(day.parts)}`] : []
  return `on ${list([...plain, ...specials(day)])}`
}

function onWeekdays(weekday: DayList, ofMonth: string): string {
  const { special } = weekday
  if (special.length === 0 && isRun(weekday.parts)) return `from ${list(names(weekday))}`
  return `on ${list([...names(weekday), ...specials(weekday)])}${special.length > 0 ? ` ${ofMonth}` : ''}`
}

function isRun(all: readonly Part[]): boolean {
  return all.length === 1 && typeof all[0] === 'object'
}

function names(weekday: DayList): string[] {
  return weekday.parts.map((part) => partWords(part, WEEKDAYS))
}

function specials({ special }: DayList): string[] {
  const near = special.flatMap((day) => (day.kind === 'workdayNear' ? [day.day] : []))
  const words = special.flatMap((day) => (day.kind === 'workdayNear' ? [] : [specialWords(day)]))
  if (near.length === 0) return words
  const s = near.length === 1 ? '' : 's'
  return [`the workday${s} (Monday to Friday) nearest to day${s} ${list(near.map(String))}`, ...words]
}

function specialWords(day: Exclude<SpecialDay, { kind: 'workdayNear' }>): string {
  switch (day.kind) {
    case 'last':
      return 'the last day'
    case 'lastWorkday':
      return 'the last workday (Monday to Friday)'
    case 'nth':
      return `the ${NTH[day.nth - 1]} ${WEEKDAYS[(day.weekday + 6) % 7]}`
    case 'lastOf':
      return `the last ${WEEKDAYS[(day.weekday + 6) % 7]}`
  }
}

/** `1, 3, 5 … 31`, `9 to 17 and 20`, and the same of names that are counted from 1. */
function numbers(all: readonly Part[], words?: readonly string[]): string {
  const gap = all.indexOf('gap')
  if (gap < 0) return list(all.map((part) => partWords(part, words)))
  const text = (some: readonly Part[]): string => some.map((part) => partWords(part, words)).join(', ')
  return `${text(all.slice(0, gap))} … ${text(all.slice(gap + 1))}`
}

function partWords(part: Part, words?: readonly string[]): string {
  const word = (number: number): string => words?.[number - 1] ?? String(number)
  if (part === 'gap') return '…'
  return typeof part === 'number' ? word(part) : `${word(part[0])} to ${word(part[1])}`
}

function list(words: readonly string[], and = 'and'): string {
  const last = words.at(-1) ?? ''
  return words.length < 2 ? last : `${words.slice(0, -1).join(', ')} ${and} ${last}`
}
