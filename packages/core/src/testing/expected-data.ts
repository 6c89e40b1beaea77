/**
 * What the data of a submitted task is compared with: properties that it must have, at any depth.
 *
 * Of plain objects the properties named count, of arrays all items; a RegExp stands for text that it finds something in,
 * and the matchers of vitest and jest say themselves what they fit. Anything else stands for what the handler would get
 * of it, after the way through the codec, and must be equal to that. What the codec refuses no data can have, so it is
 * refused here too: an assertion about it could not fail, or could not hold.
 */
import { isDeepStrictEqual, types } from 'node:util'
import { encodePayload, type Codec } from '../codec.js'

/** Some of the properties of `Data`, at any depth; for text also a RegExp. */
export type PartialData<Data> = Data extends (...args: never[]) => unknown
  ? Data
  : Data extends string
    ? Data | RegExp
    : Data extends object
      ? { readonly [Key in keyof Data]?: PartialData<Data[Key]> | undefined }
      : Data

interface Matcher {
  readonly asymmetricMatch: (actual: unknown) => unknown
}

/** @throws PayloadError `PAYLOAD_INVALID`, which names the place, when the codec refuses a part of what is expected */
export function checkExpected(codec: Codec, expected: unknown, place = 'expected'): void {
  if (isMatcher(expected) || types.isRegExp(expected)) return
  if (Array.isArray(expected)) {
    for (const [index, item] of expected.entries()) checkExpected(codec, item, `${place}[${index}]`)
  } else if (isPlain(expected)) {
    for (const [key, value] of Object.entries(expected)) checkExpected(codec, value, `${place}.${key}`)
  } else encodePayload(codec, expected, place, Infinity)
}

/** Whether data has what is expected of it. */
export function matches(codec: Codec, actual: unknown, expected: unknown): boolean {
  if (isMatcher(expected)) return expected.asymmetricMatch(actual) === true
  if (isDeepStrictEqual(actual, expected)) return true
  if (types.isRegExp(expected)) return typeof actual === 'string' && actual.search(expected) >= 0
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual) || actual.length !== expected.length) return false
    return expected.every((item, index) => matches(codec, actual[index], item))
  }
  if (isPlain(expected)) {
    if (typeof actual !== 'object' || actual === null || Array.isArray(actual)) return false
    const data = actual as Record<string, unknown>
    return Object.entries(expected).every(([key, value]) => matches(codec, data[key], value))
  }
  if (typeof expected !== 'object' || expected === null) return false
  return isDeepStrictEqual(actual, codec.decode(codec.encode(expected)))
}

/** The data with what was expected put in, so that their difference shows nothing else. */
export function merge(codec: Codec, actual: unknown, expected: unknown): unknown {
  if (matches(codec, actual, expected)) return actual
  if (!isPlain(actual) || !isPlain(expected) || isMatcher(expected)) return expected
  const merged: Record<string, unknown> = { ...actual }
  for (const [key, value] of Object.entries(expected)) merged[key] = merge(codec, actual[key], value)
  return merged
}

function isMatcher(value: unknown): value is Matcher {
  return (
    typeof value === 'object' && value !== null && typeof (value as Matcher).asymmetricMatch === 'function'
  )
}

/** An object as it is written in code, of this realm or another, such as the one in which jest runs tests. */
function isPlain(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null || 'toJSON' in value) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || (!Array.isArray(value) && Object.getPrototypeOf(prototype) === null)
}
