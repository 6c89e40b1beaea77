/**
 * A second calculator of cron, for the tests: slow, simple, and without a line of the first. It goes through local
 * hours one by one, asks of each number whether a field names it, and asks `Intl` what the clocks show.
 */

const HOUR = 3_600_000
const NAMES = 'SUN MON TUE WED THU FRI SAT'.split(' ')
const MONTHS = 'JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC'.split(' ')
const NICKNAMES: Record<string, string> = {
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
  '@monthly': '0 0 1 * *',
  '@weekly': '0 0 * * 0',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@hourly': '0 * * * *',
}
const formats = new Map<string, Intl.DateTimeFormat>()

/** What the clocks on the wall show, as ms as if it were UTC. */
export function wallClock(zone: string, instant: number): number {
  let format = formats.get(zone)
  if (format === undefined) {
    const numeric = 'numeric'
    format = new Intl.DateTimeFormat('en-US', {
      ...{ timeZone: zone, hourCycle: 'h23', year: numeric, month: numeric, day: numeric },
      ...{ hour: numeric, minute: numeric, second: numeric },
    })
    formats.set(zone, format)
  }
  // 3/29/2026, 03:00:00
  const shown = (format.format(instant).match(/\d+/g) ?? []).map(Number)
  const [month = NaN, day, year = NaN, hour, minute, second] = shown
  return Date.UTC(year, month - 1, day, hour, minute, second)
}

/** The first runs after an instant, each in ms. */
export function runsAfter(expression: string, zone: string, after: number, count: number): number[] {
  const parts = (NICKNAMES[expression] ?? expression).toUpperCase().split(/\s+/)
  if (parts.length === 5) parts.unshift('0')
  const [seconds, minutes, hours, days, months, weekdays] = parts as [
    string,
    string,
    string,
    string,
    string,
    string,
  ]
  const second = numbers(0, 59).filter((n) => names(seconds, n, 59))
  const minute = numbers(0, 59).filter((n) => names(minutes, n, 59))
  const hour = numbers(0, 23).filter((n) => names(hours, n, 23))
  const realTime = hours.includes('*') || hour.length === 24

  const found = new Set<number>()
  const start = Math.floor((after - 30 * HOUR) / HOUR) * HOUR
  for (let local = start; local < start + 200 * 366 * 24 * HOUR; local += HOUR) {
    const date = new Date(local)
    if (!hour.includes(date.getUTCHours()) || !dateMatches(date, days, months, weekdays)) continue
    const offsets = offsetsAround(zone, local)
    const nth = [...found].sort((a, b) => a - b)[count - 1]
    if (nth !== undefined && local - Math.max(...offsets) > nth) break
    for (const m of minute) {
      for (const s of second) {
        const time = local + m * 60_000 + s * 1000
        const shown = offsets.map((offset) => time - offset).filter((at) => wallClock(zone, at) === time)
        shown.sort((a, b) => a - b)
        if (realTime) shown.forEach((at) => found.add(at))
        else found.add(shown[0] ?? firstAfterGap(zone, time, time - Math.max(...offsets)))
      }
    }
    for (const at of found) if (at <= after) found.delete(at)
  }
  return [...found].sort((a, b) => a - b).slice(0, count)
}

function offsetsAround(zone: string, local: number): number[] {
  const offsets = new Set<number>()
  for (let at = local - 36 * HOUR; at <= local + 36 * HOUR; at += 2 * HOUR)
    offsets.add(wallClock(zone, at) - at)
  return [...offsets]
}

/** Goes through the minutes, then back through the seconds. */
function firstAfterGap(zone: string, time: number, from: number): number {
  let at = from
  while (wallClock(zone, at) <= time) at += 60_000
  while (wallClock(zone, at - 1000) > time) at -= 1000
  return at
}

function dateMatches(date: Date, days: string, months: string, weekdays: string): boolean {
  const monthText = MONTHS.reduce((text, name, i) => text.replaceAll(name, `${i + 1}`), months)
  if (!names(monthText, date.getUTCMonth() + 1, 12, 1)) return false
  const byDay = days.split(',').some((member) => isDay(member, date))
  const byWeekday = weekdays.split(',').some((member) => isWeekday(member, date))
  const either = !/[*?]/.test(days) && !/[*?]/.test(weekdays)
  return either ? byDay || byWeekday : byDay && byWeekday
}

function isDay(member: string, date: Date): boolean {
  const day = date.getUTCDate()
  const last = lastDay(date)
  const weekday = date.getUTCDay()
  const isWorkday = weekday >= 1 && weekday <= 5
  if (member === 'L') return day === last
  if (member === 'LW') {
    const workdays = numbers(1, last).filter((n) => isWorkdayOf(date, n))
    return day === workdays.at(-1)
  }
  if (/^\d+W$/.test(member)) {
    const wanted = parseInt(member, 10)
    if (wanted > last || !isWorkday) return false
    const distances = numbers(1, last).filter((n) => isWorkdayOf(date, n))
    distances.sort((a, b) => Math.abs(a - wanted) - Math.abs(b - wanted))
    return day === distances[0]
  }
  return names(member, day, 31, 1)
}

function isWeekday(member: string, date: Date): boolean {
  const text = NAMES.reduce(
    (left, name, i) => left.replace(`-${name}`, `-${i || 7}`).replaceAll(name, `${i}`),
    member,
  )
  const day = date.getUTCDate()
  const weekday = date.getUTCDay()
  if (text.includes('#')) {
    const [which = NaN, nth] = text.split('#').map(Number)
    return which % 7 === weekday && Math.ceil(day / 7) === nth
  }
  if (/^\dL$/.test(text)) return parseInt(text, 10) % 7 === weekday && day + 7 > lastDay(date)
  return (
    names(text, weekday, text.includes('*') ? 6 : 7) ||
    (weekday === 0 && !text.includes('*') && names(text, 7, 7))
  )
}

function isWorkdayOf(date: Date, day: number): boolean {
  const weekday = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), day)).getUTCDay()
  return weekday >= 1 && weekday <= 5
}

function lastDay(date: Date): number {
  return new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate()
}

/** Whether a list of numbers, ranges and steps names a number. */
function names(field: string, number: number, max: number, min = 0): boolean {
  return field.split(',').some((member) => {
    const [body = '', step = '1'] = member.split('/')
    const [from = NaN, to = from] = body === '*' || body === '?' ? [min, max] : body.split('-').map(Number)
    return number >= from && number <= to && (number - from) % Number(step) === 0
  })
}

function numbers(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i)
}
