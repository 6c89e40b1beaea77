/** Checks that every option shares: each refuses a bad value by the name of the option, and says what was expected. */
import { optionError } from './errors.js'
import type { PutOptions } from './storage.js'
import { LATEST, MAX_PRIORITY, Priority } from './task.js'

const NAME = /^[A-Za-z0-9._:-]{1,64}$/

/** Refuses what is no object; `expected` says what would be one. */
export function checkObject(value: unknown, option: string, expected = 'an object'): void {
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw optionError(option, expected, value)
}

/**
 * Refuses keys that nobody knows, and names the one that was probably meant.
 *
 * @param where what stands before the key in messages, such as `retry.`; empty for the outermost options
 */
export function checkKeys(value: object, known: readonly string[], where: string): void {
  for (const [key, given] of Object.entries(value)) {
    if (known.includes(key)) continue
    const near = known.find((name) => isNear(name.toLowerCase(), key.toLowerCase()))
    const hint = near === undefined ? '' : `, did you mean ${near}?`
    throw optionError(`${where}${key}`, `no such option${hint} (there are ${known.join(', ')})`, given)
  }
}

/** Whether one letter more, less or other makes them equal, or one begins with the other. */
function isNear(a: string, b: string): boolean {
  if (a.startsWith(b) || b.startsWith(a)) return true
  let i = 0
  while (i < a.length && a[i] === b[i]) i++
  const [restA, restB] = [a.slice(i), b.slice(i)]
  return restA.slice(1) === restB || restA === restB.slice(1) || restA.slice(1) === restB.slice(1)
}

export function checkName(value: unknown, option: string): void {
  if (typeof value !== 'string' || !NAME.test(value)) {
    throw optionError(option, '1 to 64 characters of A-Z a-z 0-9 . _ : -', value)
  }
}

export function checkInteger(
  value: unknown,
  option: string,
  min: number,
  max: number = Number.MAX_SAFE_INTEGER,
): number {
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max) {
    const range = max === Number.MAX_SAFE_INTEGER ? `from ${min}` : `from ${min} to ${max}`
    throw optionError(option, `an integer ${range}`, value)
  }
  return value as number
}

export function checkPriority(value: unknown, option: string): number {
  if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > MAX_PRIORITY) {
    const names = Object.entries(Priority).map(([name, number]) => `${name} ${number}`)
    throw optionError(
      option,
      `an integer from 0 to ${MAX_PRIORITY}, smaller first (${names.join(', ')})`,
      value,
    )
  }
  return value as number
}

export function checkTags(value: unknown, option: string): void {
  if (!Array.isArray(value) || value.length > 20)
    throw optionError(option, 'an array of at most 20 words', value)
  for (const tag of value as unknown[]) {
    if (typeof tag !== 'string' || tag === '' || tag.length > 64) {
      throw optionError(option, 'words of 1 to 64 characters', tag)
    }
  }
}

export function checkInstant(value: unknown, option: string): number {
  const ms = value instanceof Date ? timeOf(value) : value
  if (typeof ms !== 'number' || !Number.isFinite(ms) || Math.abs(ms) > LATEST) {
    throw optionError(
      option,
      'a valid Date, or ms since 1970',
      value instanceof Date ? 'an invalid Date' : value,
    )
  }
  return Math.ceil(ms)
}

/** NaN for what only looks like a Date, such as a proxy of one. */
function timeOf(date: Date): number {
  try {
    return date.getTime()
  } catch {
    return NaN
  }
}

/**
 * Refuses a put with a time that is no number, or none that every storage keeps as it is. A driver asks this of all puts of
 * a call before it writes any.
 *
 * @param where what stands before the option in the message, such as `puts[2].options.`; empty for a put by itself
 * @throws ValidationError `OPTION_INVALID` for a `dueIn`, `dueAt` or `expiresIn` that is not finite, or beyond ±8.64e15
 */
export function checkPut(options: PutOptions = {}, where = ''): void {
  for (const name of ['dueIn', 'dueAt', 'expiresIn'] as const) {
    const ms: unknown = options[name]
    if (ms !== undefined && (typeof ms !== 'number' || !(Math.abs(ms) <= LATEST)))
      throw optionError(`${where}${name}`, 'a finite number of ms, at most 8.64e15', ms)
  }
}

export function checkMethods(
  value: unknown,
  option: string,
  methods: readonly string[],
  expected: string = `an object with ${methods.join(', ')}`,
): void {
  const given = value as Record<string, unknown> | null | undefined
  if (methods.some((name) => typeof given?.[name] !== 'function')) throw optionError(option, expected, value)
}

export function checkBoolean(value: unknown, option: string): boolean {
  if (typeof value !== 'boolean') throw optionError(option, 'true or false', value)
  return value
}

/** A text with something in it. */
export function checkText(value: unknown, option: string, most: number): string {
  if (typeof value !== 'string' || value === '' || value.length > most) {
    throw optionError(option, `a text of 1 to ${most} characters`, value)
  }
  return value
}

/** The value, when it is one of these. */
export function oneOf<const T extends string>(value: unknown, option: string, values: readonly T[]): T {
  const found = values.find((each) => each === value)
  if (found !== undefined) return found
  throw optionError(option, values.map((each) => `'${each}'`).join(' or '), value)
}
