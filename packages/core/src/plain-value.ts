/**
 * Values for a storage that keeps them as they are: copies instead of text.
 *
 * A copy is what JSON would have made of the value, and costs a quarter of writing and reading the text. Where that
 * is not certain at a glance (a Date, a `toJSON`, anything that JSON refuses), the value becomes text as elsewhere,
 * so nothing is accepted, refused or changed in memory that would not be so in another storage.
 */

/** Levels of arrays and objects within each other. JSON.parse and the stack could take several times as many. */
export const MAX_DEPTH = 1000

/** A value in place of its text. Only a storage with `keepsValues` is given one. */
export class PlainValue {
  /** A copy of the value, or `undefined` when JSON may make something else of it. */
  static of(value: unknown): PlainValue | undefined {
    taken.bytes = 0
    const copy = faithfulPart(value, 0)
    return copy === undefined ? undefined : new PlainValue(copy, taken.bytes)
  }

  /** Of this copy alone, and never changed. */
  readonly value: unknown
  /** Bytes that its JSON takes at most. */
  readonly atMost: number

  /** @param value a copy that {@link PlainValue.of} made */
  constructor(value: unknown, atMost: number = mostBytes(value)) {
    this.value = value
    this.atMost = atMost
  }

  /** Another copy, which may be changed. */
  copy(): unknown {
    return partOf(this.value)
  }

  /** Its JSON. */
  get text(): string {
    return JSON.stringify(this.value)
  }

  /** Bytes that its JSON takes. */
  get bytes(): number {
    return Buffer.byteLength(this.text)
  }
}

/** What JSON takes of a character at most (an escape of four digits), and of any other value. */
const PER_CHARACTER = 6
const PER_VALUE = 32

/** Of the value that is being copied. */
const taken = { bytes: 0 }

function faithfulCopy(value: object, depth: number): object | undefined {
  if (depth >= MAX_DEPTH) return undefined
  taken.bytes += PER_VALUE
  if (Array.isArray(value)) {
    if ((value as { toJSON?: unknown }).toJSON !== undefined) return undefined
    const items: unknown[] = []
    for (let i = 0; i < value.length; i++) {
      const item = faithfulPart(value[i], depth + 1)
      if (item === undefined) return undefined
      items.push(item)
    }
    return items
  }
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null && !isInstanceOfPlainClass(value)) return undefined
  if ('toJSON' in value) return undefined
  const fields: Record<string, unknown> = {}
  // Half of what Object.keys takes, or Object.hasOwn here.
  for (const key in value) {
    if (!Object.prototype.hasOwnProperty.call(value, key)) continue
    const part: unknown = (value as Record<string, unknown>)[key]
    if (part === undefined) continue
    const copy = faithfulPart(part, depth + 1)
    // As an assignment it would set the prototype.
    if (copy === undefined || key === '__proto__') return undefined
    taken.bytes += key.length * PER_CHARACTER
    fields[key] = copy
  }
  return fields
}

/** The copy, or `undefined` when JSON may make something else of it. */
function faithfulPart(value: unknown, depth: number): unknown {
  switch (typeof value) {
    case 'string':
      taken.bytes += value.length * PER_CHARACTER + PER_VALUE
      return value
    case 'boolean':
      taken.bytes += PER_VALUE
      return value
    case 'number':
      taken.bytes += PER_VALUE
      // JSON knows no -0.
      return Number.isFinite(value) ? value + 0 : undefined
    case 'object':
      if (value !== null) return faithfulCopy(value, depth)
      taken.bytes += PER_VALUE
      return null
    default:
      return undefined
  }
}

/** @param value a faithful copy */
function copyOf(value: object): object {
  if (Array.isArray(value)) return value.map(partOf)
  // Of all ways the fastest: the shape is taken over whole.
  const fields: Record<string, unknown> = { ...value }
  for (const key in fields) {
    const part = fields[key]
    if (typeof part === 'object' && part !== null && Object.hasOwn(fields, key)) fields[key] = copyOf(part)
  }
  return fields
}

function partOf(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? copyOf(value) : value
}

/** Bytes that the JSON of a faithful copy takes at most. */
function mostBytes(value: unknown): number {
  if (typeof value === 'string') return value.length * PER_CHARACTER + PER_VALUE
  if (typeof value !== 'object' || value === null) return PER_VALUE
  let bytes = PER_VALUE
  if (Array.isArray(value)) {
    for (const item of value) bytes += mostBytes(item)
    return bytes
  }
  for (const key in value)
    bytes += key.length * PER_CHARACTER + mostBytes((value as Record<string, unknown>)[key])
  return bytes
}

/**
 * Whether an object has nothing but its properties. Everything with contents of another kind (Map, Error,
 * Promise, URLSearchParams, generators …) has another tag. Holds for objects of other realms too.
 */
export function isInstanceOfPlainClass(value: object): boolean {
  return Object.prototype.toString.call(value) === '[object Object]'
}
