/** A cron expression in Chinese. The days come before the time, and a blank stands between words and digits. */
import { parts, time, type Clock, type DayList, type Days, type Part, type Series } from './cron-outline.js'
import type { SpecialDay } from './cron-syntax.js'

const WEEKDAYS = ['周一', '周二', '周三', '周四', '周五', '周六', '周日']
const NTH = ['一', '二', '三', '四', '五']

export function chinese(clock: Clock, days: Days): string {
  const isEveryHour = clock.kind === 'series' && clock.hour.kind === 'all'
  const when = dayWords(days, !isEveryHour)
  const what = clockWords(clock)
  if (when === '') return what
  return /^\d/.test(what) && !when.endsWith('）') ? `${when} ${what}` : `${when}${what}`
}

function clockWords(clock: Clock): string {
  switch (clock.kind) {
    case 'times':
      return list(clock.times, ' 和 ')
    case 'hours':
      return `${clock.first} 至 ${clock.last} ${every(clock.step, '小时')}`
    case 'series':
      return seriesWords(clock)
  }
}

function seriesWords({ second, minute, hour }: Clock & { kind: 'series' }): string {
  const [s = 0, m = 0, h = 0] = [second.values[0], minute.values[0], hour.values[0]]
  if (second.kind !== 'one') {
    const seconds = second.kind === 'listed' ? ordinal(second, '秒') : every(second.step, '秒')
    if (minute.kind === 'all')
      return `${hourScope(hour, 59)}${second.kind === 'listed' ? '每分钟' : ''}${seconds}`
    if (minute.kind === 'one' && hour.kind === 'one') return `${time(h, m)} 的${seconds}`
    return `${ofHours(hour)}${ordinal(minute, '分')}的${seconds}`
  }
  const atSecond = s === 0 ? '' : `第 ${s} 秒`
  if (minute.kind === 'all' || minute.kind === 'every') {
    const scope = hourScope(hour, minute.values.at(-1) ?? 0)
    return `${scope}${every(minute.step, '分钟')}${atSecond && minute.step > 1 ? '的' : ''}${atSecond}`
  }
  if (minute.kind === 'one' && m === 0 && hour.kind === 'all') return `每小时整点${atSecond}`
  return `${ofHours(hour)}${ordinal(minute, '分')}${atSecond}`
}

function every(step: number, unit: string): string {
  return step === 1 ? `每${unit}` : `每 ${step} ${unit}`
}

/** `第 0、7、14 … 56 分` */
function ordinal(series: Series, unit: string): string {
  return `第 ${numbers(series)} ${unit}`
}

function ofHours(hour: Series): string {
  return hour.kind === 'all' ? '每小时' : `${numbers(hour)} 点的`
}

/** For something that goes on through the hours. */
function hourScope(hour: Series, lastMinute: number): string {
  if (hour.kind === 'all') return ''
  const [run, ...others] = parts(hour.values)
  if (typeof run === 'number' && others.length === 0) return `${time(run, 0)} 至 ${time(run, lastMinute)} `
  if (typeof run === 'object' && others.length === 0)
    return `${time(run[0], 0)} 至 ${time(run[1], lastMinute)} `
  return `${numbers(hour)} 点的`
}

function dayWords({ month, day, weekday, join }: Days, isDaily: boolean): string {
  const months = month && `每年 ${list(month.map((part) => partWords(part, '月')))}`
  if (day === undefined) {
    if (weekday !== undefined)
      return months === undefined ? weekdayWords(weekday) : `${months}的${weekdayWords(weekday, true)}`
    if (months !== undefined) return `${months}${isDaily ? '每天' : '的'}`
    return isDaily ? '每天' : ''
  }
  const ofDays = list([...dayParts(day.parts), ...specials(day)])
  const glue = /^\d/.test(ofDays) ? ' ' : ''
  // 每年 2 月 29 日, but 每年 1 月和 6 月的 1 日
  const isDate = month?.length === 1 && weekday === undefined
  const head = `${months ?? '每月'}${months === undefined || isDate ? '' : '的'}${glue}${ofDays}`
  if (weekday === undefined) return head
  if (join === 'either') return `${head}或${weekdayWords(weekday, months !== undefined)}`
  return `${head}中的${list([...names(weekday), ...specials(weekday)])}`
}

/** Plain ones come every week, the others every month. */
function weekdayWords(weekday: DayList, inMonths = false): string {
  const plain = names(weekday)
  const special = specials(weekday)
  const words = plain.length > 0 ? [`每${list(plain)}`] : []
  if (special.length > 0) words.push(`${inMonths ? '' : '每月'}${list(special)}`)
  return words.join('和')
}

function names(weekday: DayList): string[] {
  return weekday.parts.map((part) => partWords(part, '', WEEKDAYS))
}

function dayParts(all: readonly Part[]): string[] {
  const gap = all.indexOf('gap')
  if (gap < 0) return all.map((part) => partWords(part, '日'))
  return [`${all.slice(0, gap).join('、')} … ${all.slice(gap + 1).join('、')} 日`]
}

function specials({ special }: DayList): string[] {
  const near = special.flatMap((day) => (day.kind === 'workdayNear' ? [`${day.day} 日`] : []))
  const words = special.flatMap((day) => (day.kind === 'workdayNear' ? [] : [specialWords(day)]))
  return near.length === 0 ? words : [`最接近 ${list(near)}的工作日（周一至周五）`, ...words]
}

function specialWords(day: Exclude<SpecialDay, { kind: 'workdayNear' }>): string {
  switch (day.kind) {
    case 'last':
      return '最后一天'
    case 'lastWorkday':
      return '最后一个工作日（周一至周五）'
    case 'nth':
      return `第${NTH[day.nth - 1]}个${WEEKDAYS[(day.weekday + 6) % 7]}`
    case 'lastOf':
      return `最后一个${WEEKDAYS[(day.weekday + 6) % 7]}`
  }
}

function numbers(series: Series): string {
  const all = parts(series.values)
  const text = all.map((part) => (part === 'gap' ? ' … ' : partWords(part, '')))
  return text.join('、').replace('、 … 、', ' … ')
}

function partWords(part: Part, unit: string, words?: readonly string[]): string {
  if (part === 'gap') return '…'
  const after = unit === '' ? '' : ` ${unit}`
  const word = (number: number): string => words?.[number - 1] ?? String(number)
  if (typeof part === 'number') return `${word(part)}${after}`
  const to = words === undefined ? ' 至 ' : '至'
  return `${word(part[0])}${to}${word(part[1])}${after}`
}

/** `1 日、3 日和 5 日`: no blank before a word, one before a digit. */
function list(words: readonly string[], and = '和'): string {
  const last = words.at(-1) ?? ''
  if (words.length < 2) return last
  const glue = and === '和' && /^\d/.test(last) ? '和 ' : and
  return `${words.slice(0, -1).join('、')}${glue}${last}`
}
