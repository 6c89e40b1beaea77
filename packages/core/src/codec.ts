/**
 * How values become text or bytes for the storage, and back.
 *
 * `jsonCodec`, the default, is JSON that never loses anything in silence: what JSON would drop or turn into
 * something else (a Map, a function, NaN, a Buffer) is refused, and the error names the place. What it accepts
 * comes back equal, except that a property with the value `undefined` is left out, that an object with `toJSON`
 * comes back as what that gave (a Date as its ISO text), and that an instance of a class comes back as a plain
 * object of its fields.
 */
import { NeoTaskError, PayloadError, show } from './errors.js'
import { isInstanceOfPlainClass, MAX_DEPTH, PlainValue } from './plain-value.js'
import type { Encoded } from './storage.js'

export interface Codec {
  /** Stored beside what it made, so that the right codec decodes it later. */
  readonly id: string
  /**
   * @param what how messages call the value, such as `data`
   * @throws PayloadError `PAYLOAD_INVALID`; anything else is wrapped in one
   */
  encode(value: unknown, what?: string): Encoded
  decode(encoded: Encoded): unknown
}

const bytesToText = new TextDecoder()

/** Strict JSON. `undefined` itself is the empty text. */
export const jsonCodec: Codec = {
  id: 'json',

  encode(value: unknown, what = 'data'): string {
    switch (typeof value) {
      case 'string':
        return JSON.stringify(value)
      case 'number':
        if (Number.isFinite(value)) return `${value}`
        break
      case 'boolean':
        return value ? 'true' : 'false'
      case 'undefined':
        return ''
      case 'object':
        if (isFaithful(value, 0)) return JSON.stringify(value)
        break
      default:
    }
    // Either something is wrong, and this finds out what and where, or there is a toJSON to be called.
    const plain = new Normalizer(what).normalize(value)
    return plain === undefined ? '' : JSON.stringify(plain)
  },

  decode(encoded: Encoded): unknown {
    if (isPlain(encoded)) return encoded.copy()
    const text = typeof encoded === 'string' ? encoded : bytesToText.decode(encoded)
    return text === '' ? undefined : JSON.parse(text)
  },
}

/** The same for a storage that keeps values: copies, which come back equal to what the text would give. */
export const plainCodec: Codec = {
  id: jsonCodec.id,
  encode: (value, what) => (PlainValue.of(value) as Encoded | undefined) ?? jsonCodec.encode(value, what),
  decode: (encoded) => jsonCodec.decode(encoded),
}

/**
 * Encodes within a limit.
 *
 * @param what how messages call the value, such as `data` or `result`
 * @param maxBytes of the encoded form
 * @throws PayloadError `PAYLOAD_INVALID` or `PAYLOAD_TOO_LARGE`
 */
export function encodePayload(codec: Codec, value: unknown, what: string, maxBytes: number): Encoded {
  let encoded: Encoded
  try {
    encoded = codec.encode(value, what)
  } catch (error) {
    if (error instanceof NeoTaskError) throw error
    throw new PayloadError(
      'PAYLOAD_INVALID',
      `${what}: the codec ${show(codec.id)} failed: ${messageOf(error)}`,
      {
        cause: error,
      },
    )
  }
  if (typeof encoded !== 'string' && !(encoded instanceof Uint8Array || isPlain(encoded))) {
    throw new PayloadError(
      'PAYLOAD_INVALID',
      `${what}: the codec ${show(codec.id)} must return a string or a Uint8Array, got ${show(encoded)}`,
    )
  }
  if (encodedSizeAtMost(encoded) > maxBytes) checkSize(encoded, what, maxBytes)
  return encoded
}

function checkSize(encoded: Encoded, what: string, maxBytes: number): void {
  const size = encodedSize(encoded)
  if (size <= maxBytes) return
  throw new PayloadError(
    'PAYLOAD_TOO_LARGE',
    `${what}: expected at most ${maxBytes} bytes when encoded, got ${size}`,
  )
}

/** A bound of {@link encodedSize} that costs nothing: UTF-8 takes at most 3 bytes for each unit of a string. */
export function encodedSizeAtMost(encoded: Encoded): number {
  if (typeof encoded === 'string') return encoded.length * 3
  return isPlain(encoded) ? encoded.atMost : encoded.byteLength
}

const isPlain = (encoded: unknown): encoded is PlainValue => encoded instanceof PlainValue

/** The same as text or bytes, for where a copy cannot go. */
export function asTold(encoded: Encoded): Encoded {
  return isPlain(encoded) ? encoded.text : encoded
}

/** Bytes that it takes as UTF-8. */
export function encodedSize(encoded: Encoded): number {
  if (isPlain(encoded)) return encoded.bytes
  return typeof encoded === 'string' ? Buffer.byteLength(encoded) : encoded.byteLength
}

/**
 * Whether JSON.stringify alone tells all of an object or array. This is the hot path: it allocates nothing,
 * knows no paths, and leaves every doubt to the {@link Normalizer}. A cycle ends at the bound of the depth.
 */
function isFaithful(value: object | null, depth: number): boolean {
  if (value === null) return true
  if (depth >= MAX_DEPTH) return false

  if (Array.isArray(value)) {
    if ((value as { toJSON?: unknown }).toJSON !== undefined) return false
    for (let i = 0; i < value.length; i++) {
      const item: unknown = value[i]
      if (typeof item === 'string' || typeof item === 'boolean') continue
      if (typeof item === 'number' ? !Number.isFinite(item) : typeof item !== 'object') return false
      if (typeof item === 'object' && !isFaithful(item, depth + 1)) return false
    }
    return true
  }

  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) {
    if (prototype === Date.prototype) {
      return (value as Date).toJSON === Date.prototype.toJSON && !Number.isNaN((value as Date).getTime())
    }
    if (!isInstanceOfPlainClass(value) || 'toJSON' in value) return false
  }
  // What comes by inheritance JSON leaves out; to look at it too costs nothing, and at worst raises a doubt.
  for (const key in value) {
    const item = (value as Record<string, unknown>)[key]
    if (typeof item === 'string' || typeof item === 'boolean' || item === undefined) continue
    // A function is refused here, so that an own toJSON raises the doubt that it should.
    if (typeof item === 'number' ? !Number.isFinite(item) : typeof item !== 'object') return false
    if (typeof item === 'object' && !isFaithful(item, depth + 1)) return false
  }
  return true
}

/** The slow path: makes the plain copy that JSON.stringify tells faithfully, or says what is in the way and where. */
class Normalizer {
  readonly #root: string
  /** The keys from the root to where we are, and the objects that they belong to. */
  readonly #path: (string | number)[] = []
  readonly #ancestors: object[] = []

  constructor(root: string) {
    this.#root = root
  }

  normalize(value: unknown, key = ''): unknown {
    switch (typeof value) {
      case 'string':
      case 'boolean':
      case 'undefined':
        return value
      case 'number':
        if (Number.isFinite(value)) return value
        throw this.#refuse(String(value))
      case 'object':
        return value === null ? null : this.#object(value, key)
      default:
        throw this.#refuse(typeof value === 'bigint' ? `the BigInt ${show(value)}` : show(value))
    }
  }

  #object(value: object, key: string): unknown {
    if (ArrayBuffer.isView(value)) throw this.#refuse(`an instance of ${nameOf(value)}`)
    if (value instanceof Date && Number.isNaN(value.getTime())) throw this.#refuse('an invalid Date')
    if (typeof (value as { toJSON?: unknown }).toJSON === 'function') {
      const told = this.#callToJson(value as { toJSON(key: string): unknown }, key)
      // As JSON does, toJSON is called once: what it gave is taken for what it is.
      return typeof told === 'object' && told !== null ? this.#children(told) : this.normalize(told)
    }
    return this.#children(value)
  }

  #callToJson(value: { toJSON(key: string): unknown }, key: string): unknown {
    try {
      return value.toJSON(key)
    } catch (error) {
      throw this.#error(`its toJSON threw: ${messageOf(error)}`, error)
    }
  }

  #children(value: object): object {
    if (this.#ancestors.length >= MAX_DEPTH) throw this.#tooDeep()
    this.#ancestors.push(value)
    let copy: object
    if (Array.isArray(value)) {
      const items: unknown[] = []
      for (let i = 0; i < value.length; i++) {
        this.#path.push(i)
        const item = this.normalize(value[i], String(i))
        if (item === undefined)
          throw this.#refuse(i in value ? 'undefined in an array' : 'a hole in an array')
        items.push(item)
        this.#path.pop()
      }
      copy = items
    } else {
      if (!isInstanceOfPlainClass(value)) throw this.#refuse(`an instance of ${nameOf(value)}`)
      // Without a prototype, so that a key `__proto__` is a key like any other.
      const fields = Object.create(null) as Record<string, unknown>
      for (const key of Object.keys(value)) {
        this.#path.push(key)
        const item = this.normalize((value as Record<string, unknown>)[key], key)
        if (item !== undefined) fields[key] = item
        this.#path.pop()
      }
      copy = fields
    }
    this.#ancestors.pop()
    return copy
  }

  #tooDeep(): PayloadError {
    const seen = new Map<object, number>()
    for (const [depth, ancestor] of this.#ancestors.entries()) {
      const first = seen.get(ancestor)
      if (first !== undefined) {
        const to = this.#place(this.#path.slice(0, first))
        this.#path.length = depth
        return this.#error(`expected data without cycles, got ${to} again`)
      }
      seen.set(ancestor, depth)
    }
    return this.#error(`expected at most ${MAX_DEPTH} levels of nesting, got more`)
  }

  #refuse(got: string): PayloadError {
    return this.#error(`expected what JSON can tell, got ${got}`)
  }

  #error(message: string, cause?: unknown): PayloadError {
    const text = `${this.#place(this.#path)}: ${message}`
    return new PayloadError('PAYLOAD_INVALID', text, cause === undefined ? {} : { cause })
  }

  /** As one would write it in code: `data.items[3].when`. */
  #place(path: readonly (string | number)[]): string {
    let text = this.#root
    for (const key of path) {
      if (text.length > 200) return `${text}…`
      if (typeof key === 'string' && /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(key)) text += `.${key}`
      else text += `[${typeof key === 'number' ? key : show(key)}]`
    }
    return text
  }
}

/** The name of its class, for messages. */
function nameOf(value: object): string {
  const maker: unknown = value.constructor
  return typeof maker === 'function' && maker.name !== '' && maker !== Object
    ? maker.name
    : Object.prototype.toString.call(value).slice(8, -1)
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : show(error)
}
