/**
 * The dialect: what a cron expression may say, and what it means field by field.
 *
 * Whatever is not clearly one of the forms on the guide page is refused with the name of the field, what was
 * expected and what came, and where the slip is a known one, with what was probably meant. Nothing is guessed and
 * nothing is left to the leniency of a calculator.
 */
import { ValidationError, show } from '@neotask/core'

type FieldName = 'second' | 'minute' | 'hour' | 'day of month' | 'month' | 'weekday'

/** One field, understood. */
export interface CronField {
  readonly name: FieldName
  /** The numbers it names, sorted. Sunday is 0. Empty when it has only members that need the calendar. */
  readonly values: readonly number[]
  /** Whether it names every number that it can. */
  readonly all: boolean
  /** Whether a member is written with a star or `?`: `*`, `*\/5`. */
  readonly star: boolean
  /** Members that need the calendar, in the order written. */
  readonly special: readonly SpecialDay[]
  /** The same field in digits, as the calculator takes it. */
  readonly text: string
}

/** A day that depends on the month: `L`, `LW`, `15W`, `FRI#2`, `FRIL`. */
export type SpecialDay =
  | { readonly kind: 'last' }
  | { readonly kind: 'lastWorkday' }
  | { readonly kind: 'workdayNear'; readonly day: number }
  | { readonly kind: 'nth'; readonly weekday: number; readonly nth: number }
  | { readonly kind: 'lastOf'; readonly weekday: number }

/** A whole expression, understood. */
export interface CronFields {
  /** As written, with single spaces. */
  readonly expression: string
  readonly second: CronField
  readonly minute: CronField
  readonly hour: CronField
  readonly day: CronField
  readonly month: CronField
  readonly weekday: CronField
  /**
   * When day of month and weekday are both restricted: `either` lets a day through that fits one of them, `both`
   * one that fits both. It is `both` when one of them is written with a star, as in Vixie cron.
   */
  readonly days: 'either' | 'both'
}

interface Shape {
  readonly name: FieldName
  readonly min: number
  readonly max: number
  /** For messages. */
  readonly expected: string
  readonly names?: readonly string[]
}

const MONTHS = ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC']
const WEEKDAYS = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT']

const SHAPES: readonly Shape[] = [
  { name: 'second', min: 0, max: 59, expected: '0-59' },
  { name: 'minute', min: 0, max: 59, expected: '0-59' },
  { name: 'hour', min: 0, max: 23, expected: '0-23' },
  { name: 'day of month', min: 1, max: 31, expected: '1-31, L, LW, 15W or ?' },
  { name: 'month', min: 1, max: 12, expected: '1-12 or JAN-DEC', names: MONTHS },
  { name: 'weekday', min: 0, max: 7, expected: '0-7, SUN-SAT, FRI#2, FRIL or ?', names: WEEKDAYS },
]

const NICKNAMES = new Map([
  ['@yearly', '0 0 1 1 *'],
  ['@annually', '0 0 1 1 *'],
  ['@monthly', '0 0 1 * *'],
  ['@weekly', '0 0 * * 0'],
  ['@daily', '0 0 * * *'],
  ['@midnight', '0 0 * * *'],
  ['@hourly', '0 * * * *'],
])

/** Longer than every list of every value; a record is not the place for more. */
const MAX_LENGTH = 1000

/** @throws ValidationError `CRON_INVALID` */
export function parseExpression(value: unknown): CronFields {
  if (typeof value !== 'string') {
    throw new ValidationError('CRON_INVALID', `cron expression: expected text, got ${show(value)}`)
  }
  if (value.length > MAX_LENGTH) {
    throw invalid(value, `expected at most ${MAX_LENGTH} characters, got ${value.length}`)
  }
  const expression = value.trim().split(/\s+/).join(' ')
  const parts = (expression.startsWith('@') ? nickname(expression) : expression).split(' ')
  if (parts.length !== 5 && parts.length !== 6) throw wrongCount(value, expression)
  if (parts.length === 5) parts.unshift('0')
  const parse = (index: number): CronField =>
    parseField(expression, SHAPES[index] as Shape, parts[index] ?? '')
  const [second, minute, hour] = [parse(0), parse(1), parse(2)]
  const [day, month, weekday] = [parse(3), parse(4), parse(5)]
  const days = day.star || weekday.star ? 'both' : 'either'
  return { expression, second, minute, hour, day, month, weekday, days }
}

/** An expression that can never come. */
export function impossible(fields: CronFields): ValidationError {
  const { day, month, weekday } = fields
  const got = [day, month, weekday].map(({ name, text }) => `${name} ${text}`).join(', ')
  return new ValidationError(
    'CRON_INVALID',
    `cron expression ${show(fields.expression)} can never come: no year has a day with ${got}`,
  )
}

function nickname(expression: string): string {
  const known = NICKNAMES.get(expression.toLowerCase())
  if (known !== undefined) return known
  let hint = ''
  if (/^@every\b/i.test(expression)) hint = ', use submitInterval for intervals'
  else if (/^@reboot$/i.test(expression)) hint = ', which is no time'
  else {
    const near = [...NICKNAMES.keys()].find(
      (name) => name.slice(0, 3) === expression.slice(0, 3).toLowerCase(),
    )
    if (near !== undefined) hint = `, did you mean ${near}?`
  }
  throw invalid(
    expression,
    `expected one of ${[...NICKNAMES.keys()].join(' ')}, got ${show(expression)}${hint}`,
  )
}

function wrongCount(value: string, expression: string): ValidationError {
  const parts = expression === '' ? [] : expression.split(' ')
  let hint = ''
  // The star of `*/5` was lost, and with it a field: Markdown eats it.
  if (parts.length < 5 && parts[0]?.startsWith('/')) {
    hint = `, did you mean ${[`*${parts[0]}`, ...parts.slice(1)].join(' ')}${' *'.repeat(5 - parts.length)}?`
  } else if (parts.some((part) => part.endsWith(','))) hint = '; a list has no spaces'
  else if (parts.length === 7) hint = '; years are not supported'
  const expected =
    'five fields (minute, hour, day of month, month, weekday), six (second first) or a name (@daily)'
  return invalid(value, `expected ${expected}, got ${parts.length}${hint}`)
}

/** Most fields of most expressions are a star, so these are read once. */
const STARS = new Map<Shape, CronField>()

function parseField(expression: string, shape: Shape, text: string): CronField {
  if (text !== '*') return readField(expression, shape, text)
  const star = STARS.get(shape) ?? readField(expression, shape, text)
  STARS.set(shape, star)
  return star
}

function readField(expression: string, shape: Shape, text: string): CronField {
  const values = new Set<number>()
  const special: SpecialDay[] = []
  const digits: string[] = []
  let star = false
  let whole = false
  const members = text.split(',')
  for (const written of members) {
    const member = parseMember(expression, shape, written.toUpperCase(), text)
    if ('kind' in member) {
      if (member.kind === 'lastWorkday' && members.length > 1) {
        throw wrongField(expression, shape, text, 'LW stands alone')
      }
      special.push(member)
      digits.push(specialText(member))
      continue
    }
    const { from, to, step } = member
    star ||= member.star
    whole ||= member.star && step === 1
    // Sunday may be written as 7 at the end of a range.
    for (let number = from; number <= to; number += step) {
      values.add(shape.name === 'weekday' ? number % 7 : number)
    }
    digits.push(step === 1 ? (from === to ? `${from}` : `${from}-${to}`) : `${from}-${to}/${step}`)
  }
  const count = shape.name === 'weekday' ? 7 : shape.max - shape.min + 1
  const all = values.size === count
  return {
    name: shape.name,
    values: [...values].sort((a, b) => a - b),
    all,
    star,
    special: all ? [] : special,
    text: whole ? '*' : digits.join(','),
  }
}

interface Range {
  readonly from: number
  readonly to: number
  readonly step: number
  readonly star: boolean
}

function parseMember(expression: string, shape: Shape, member: string, field: string): Range | SpecialDay {
  const { name, min, max } = shape
  const refuse = (hint?: string): ValidationError => wrongField(expression, shape, field, hint)
  if (member === '') throw refuse('a member of the list is empty (a list has no spaces)')
  const last = name === 'weekday' ? 6 : max
  if (member === '*') return { from: min, to: last, step: 1, star: true }
  if (member === '?') {
    if (name !== 'day of month' && name !== 'weekday') throw refuse('did you mean *?')
    return { from: min, to: last, step: 1, star: true }
  }
  const special = specialDay(shape, member, refuse)
  if (special !== undefined) return special

  const [body = '', stepText, ...rest] = member.split('/')
  if (rest.length > 0) throw refuse()
  if (stepText === undefined) return { ...range(shape, body, refuse), step: 1, star: false }
  const step = integer(stepText)
  const count = last - min + 1
  if (body === '') throw refuse(step === undefined ? undefined : `did you mean */${step}?`)
  if (step === undefined || step < 1 || step > count) throw refuse(`a step is from 1 to ${count}`)
  if (body === '*') return { from: min, to: last, step, star: true }
  if (body === '?') throw refuse(`did you mean */${step}?`)
  if (!body.includes('-')) throw refuse(`did you mean ${body}-${last}/${step}?`)
  return { ...range(shape, body, refuse), step, star: false }
}

function range(
  shape: Shape,
  body: string,
  refuse: (hint?: string) => ValidationError,
): { from: number; to: number } {
  const ends = body.split('-')
  if (ends.length > 2) throw refuse()
  const from = number(shape, ends[0] ?? '', refuse)
  // Sunday ends a range as well as it begins one.
  const to = ends[1] === undefined ? from : ends[1] === 'SUN' && from > 0 ? 7 : number(shape, ends[1], refuse)
  if (from <= to) return { from, to }
  const last = shape.name === 'weekday' ? 6 : shape.max
  // 7 is Sunday, which also begins the week.
  if (from > last) throw refuse(`did you mean ${shape.min}-${to}?`)
  const piece = (a: number, b: number): string => (a === b ? `${a}` : `${a}-${b}`)
  throw refuse(`a range does not wrap, did you mean ${piece(from, last)},${piece(shape.min, to)}?`)
}

function number(shape: Shape, text: string, refuse: (hint?: string) => ValidationError): number {
  const { min, max, names } = shape
  const named = names?.indexOf(text) ?? -1
  if (named >= 0) return named + min
  const value = integer(text)
  if (value === undefined) {
    const near = text.length > 3 ? names?.find((name) => text.startsWith(name)) : undefined
    throw refuse(near && `did you mean ${near}?`)
  }
  if (value >= min && value <= max) return value
  throw refuse(value === max + 1 && max >= 23 && min === 0 ? 'did you mean 0?' : undefined)
}

function specialDay(
  shape: Shape,
  member: string,
  refuse: (hint?: string) => ValidationError,
): SpecialDay | undefined {
  if (shape.name === 'day of month') {
    if (member === 'L') return { kind: 'last' }
    if (member === 'LW') return { kind: 'lastWorkday' }
    if (member === 'WL') throw refuse('did you mean LW?')
    const day = /^(\d+)W$/.exec(member)?.[1]
    if (day !== undefined) return { kind: 'workdayNear', day: number(shape, day, refuse) }
    if (/^\d+L$/.test(member) || member.includes('#')) throw refuse('that belongs into the field of weekdays')
    if (/^L-\d+$/.test(member)) throw refuse('days before the last one are not supported')
    if (/^W\d+$/.test(member)) throw refuse(`did you mean ${member.slice(1)}W?`)
  } else if (shape.name === 'weekday') {
    if (member === 'L') throw refuse('did you mean 6, or 6L for the last Saturday?')
    if (member.endsWith('W')) throw refuse('that belongs into the field of days of the month')
    const [, name = '', nth] = /^([^#]*)#([^#]*)$/.exec(member) ?? []
    if (nth !== undefined) {
      const weekday = number(shape, name, refuse) % 7
      if (nth === 'L') throw refuse(`did you mean ${name}L?`)
      if (!/^[1-5]$/.test(nth)) throw refuse('a month has a first to fifth of each weekday')
      return { kind: 'nth', weekday, nth: Number(nth) }
    }
    const lastOf = /^([^-/]+)L$/.exec(member)?.[1]
    if (lastOf !== undefined) return { kind: 'lastOf', weekday: number(shape, lastOf, refuse) % 7 }
  }
  return undefined
}

function specialText(day: SpecialDay): string {
  switch (day.kind) {
    case 'last':
      return 'L'
    case 'lastWorkday':
      return 'LW'
    case 'workdayNear':
      return `${day.day}W`
    case 'nth':
      return `${day.weekday}#${day.nth}`
    case 'lastOf':
      return `${day.weekday}L`
  }
}

function integer(text: string): number | undefined {
  return /^\d{1,4}$/.test(text) ? Number(text) : undefined
}

function wrongField(expression: string, shape: Shape, field: string, hint?: string): ValidationError {
  const expected = `${shape.expected} (alone, as *, a range 1-5, a step */5, or a list of these)`
  return invalid(
    expression,
    `${shape.name}: expected ${expected}, got ${show(field)}${hint ? `, ${hint}` : ''}`,
  )
}

function invalid(expression: string, what: string): ValidationError {
  return new ValidationError('CRON_INVALID', `cron expression ${show(expression)}: ${what}`)
}
