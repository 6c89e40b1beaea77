import fc from 'fast-check'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { encodedSize, encodePayload, jsonCodec, type Codec } from './codec.js'
import { NeoTaskError, PayloadError } from './errors.js'

const there = (value: unknown): unknown => jsonCodec.decode(jsonCodec.encode(value))

function refusal(value: unknown): PayloadError {
  try {
    jsonCodec.encode(value)
  } catch (error) {
    expect(error).toBeInstanceOf(PayloadError)
    expect(error).toMatchObject({ code: 'PAYLOAD_INVALID', retryable: false })
    return error as PayloadError
  }
  throw new Error('it was accepted')
}

class Point {
  readonly x: number
  readonly y: number
  constructor(x: number, y: number) {
    this.x = x
    this.y = y
  }
  get length(): number {
    return Math.hypot(this.x, this.y)
  }
}

describe('jsonCodec', () => {
  it('writes any JSON value as JSON.stringify does', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(jsonCodec.encode(value)).toBe(JSON.stringify(value))
        expect(there(value)).toEqual(JSON.parse(JSON.stringify(value)))
      }),
    )
  })

  it('writes what has a toJSON as JSON.stringify does, wherever it is', () => {
    const telling = fc.jsonValue().map((value) => ({ ignored: 1n, toJSON: () => value }))
    const tree = fc.letrec((tie) => ({
      tree: fc.oneof(
        { maxDepth: 4 },
        telling,
        fc.date({ noInvalidDate: true }),
        fc.jsonValue(),
        fc.array(tie('tree')),
        fc.dictionary(fc.string(), tie('tree')),
      ),
    })).tree
    fc.assert(
      fc.property(tree, (value) => {
        expect(jsonCodec.encode(value)).toBe(JSON.stringify(value))
      }),
    )
  })

  it('keeps undefined at the top, and leaves it out as a property', () => {
    expect(jsonCodec.encode(undefined)).toBe('')
    expect(there(undefined)).toBe(undefined)
    expect(there({ a: undefined, b: 1 })).toStrictEqual({ b: 1 })
    expect(there({ a: undefined, b: new URL('https://a.example/') })).toStrictEqual({
      b: 'https://a.example/',
    })
    expect(there({ toJSON: () => undefined })).toBe(undefined)
    expect(there('')).toBe('')
    expect(there(null)).toBe(null)
  })

  it('writes dates, instances of classes, objects without prototype and of other realms', () => {
    const date = new Date(0)
    class Day extends Date {
      override toJSON(): string {
        return 'a day'
      }
    }
    expect(there({ date, day: new Day() })).toStrictEqual({ date: '1970-01-01T00:00:00.000Z', day: 'a day' })
    expect(there({ point: new Point(3, 4) })).toStrictEqual({ point: { x: 3, y: 4 } })
    expect(there(Object.assign(Object.create(null), { a: [1] }))).toStrictEqual({ a: [1] })
    expect(there(runInNewContext('({ a: [1, { b: new Date(0) }] })'))).toStrictEqual({
      a: [1, { b: '1970-01-01T00:00:00.000Z' }],
    })
    expect(there([Object.assign(new Date(0), { toJSON: () => ({ told: true }) })])).toEqual([{ told: true }])
    expect(refusal([Object.assign(new Date(0), { toJSON: () => NaN })]).message).toContain('data[0]')
    expect(there(Object.assign([1], { toJSON: () => 'told' }))).toBe('told')
  })

  it('calls toJSON once, with the key', () => {
    const keys: string[] = []
    const telling = {
      toJSON(key: string) {
        keys.push(key)
        return { key }
      },
    }
    jsonCodec.encode({ a: telling, list: [0, telling] })
    expect(keys).toEqual(['a', '1'])
  })

  it.each<[string, () => unknown, string]>([
    ['a function', () => function named() {}, 'function named'],
    ['a symbol', () => Symbol('s'), 'a symbol'],
    ['a BigInt', () => 12n, 'the BigInt 12n'],
    ['NaN', () => NaN, 'NaN'],
    ['Infinity', () => -Infinity, '-Infinity'],
    ['a Map', () => new Map([[1, 2]]), 'Map'],
    ['a Set', () => new Set([1]), 'Set'],
    ['a WeakMap', () => new WeakMap(), 'WeakMap'],
    ['a RegExp', () => /x/, 'RegExp'],
    ['a Promise', () => Promise.resolve(1), 'Promise'],
    ['an Error', () => new TypeError('x'), 'TypeError'],
    ['an ArrayBuffer', () => new ArrayBuffer(1), 'ArrayBuffer'],
    ['a typed array', () => new Float64Array(1), 'Float64Array'],
    ['a DataView', () => new DataView(new ArrayBuffer(1)), 'DataView'],
    ['a Buffer, although it has a toJSON', () => Buffer.from('x'), 'Buffer'],
    ['an invalid Date', () => new Date(NaN), 'an invalid Date'],
    ['URLSearchParams', () => new URLSearchParams('a=1'), 'URLSearchParams'],
    ['a boxed number', () => Object(1) as unknown, 'Number'],
    ['an iterator', () => [1].values(), 'Array Iterator'],
    ['a Map of another realm', () => runInNewContext('new Map()') as unknown, 'Map'],
    ['what a toJSON gave', () => ({ toJSON: () => new Map() }), 'Map'],
  ])('refuses %s at any place, and says where', (_, make, shown) => {
    for (const [value, path] of [
      [make(), 'data'],
      [{ items: [0, 1, 2, { when: make() }] }, 'data.items[3].when'],
      [new Point(1, make() as number), 'data.y'],
      [[[make()]], 'data[0][0]'],
      [{ 'a key': { 1: make() } }, 'data["a key"]["1"]'],
    ] as const) {
      const { message } = refusal(value)
      expect(message.startsWith(`${path}: expected what JSON can tell, got `)).toBe(true)
      expect(message).toContain(shown)
    }
  })

  it('refuses undefined and holes in arrays', () => {
    expect(refusal([1, undefined]).message).toContain(
      'data[1]: expected what JSON can tell, got undefined in an array',
    )
    // eslint-disable-next-line no-sparse-arrays
    expect(refusal({ a: [1, , 3] }).message).toContain('data.a[1]: expected what JSON can tell, got a hole')
    expect(refusal([{ toJSON: () => undefined }]).message).toContain('data[0]')
  })

  it('says what a toJSON threw', () => {
    const cause = new Error('not now')
    const error = refusal({
      a: {
        toJSON() {
          throw cause
        },
      },
    })
    expect(error.message).toBe('data.a: its toJSON threw: not now')
    expect(error.cause).toBe(cause)
  })

  it('refuses a cycle, and says where it closes', () => {
    const parent: Record<string, unknown> = { name: 'p' }
    parent['children'] = [{ parent }]
    expect(refusal({ parent }).message).toBe(
      'data.parent.children[0].parent: expected data without cycles, got data.parent again',
    )
    const list: unknown[] = []
    list.push(list)
    expect(refusal(list).message).toBe('data[0]: expected data without cycles, got data again')
  })

  it('writes an object that appears twice without a cycle', () => {
    const shared = { a: 1 }
    expect(there([shared, shared, new URL('https://a.example/')])).toEqual([
      shared,
      shared,
      'https://a.example/',
    ])
  })

  it('refuses what is nested too deep with a clear error, and takes what is not', () => {
    const nested = (levels: number, inner: unknown): unknown => {
      let value = inner
      for (let level = 0; level < levels; level++) value = level % 2 === 0 ? [value] : { value }
      return value
    }
    expect(there(nested(1000, 1))).toEqual(nested(1000, 1))
    expect(there(nested(999, new Date(0)))).toEqual(nested(999, '1970-01-01T00:00:00.000Z'))
    for (const levels of [1001, 100_000]) {
      const { message } = refusal(nested(levels, 1))
      expect(message).toContain('expected at most 1000 levels of nesting')
      expect(message.length).toBeLessThan(400)
    }
    const endless = { toJSON: () => ({ endless }) }
    expect(refusal(endless).message).toContain('levels of nesting')
  })

  it('keeps a key __proto__ as a key, and pollutes nothing', () => {
    const text = '{"__proto__":{"polluted":true},"a":{"__proto__":{"polluted":true}}}'
    const value = jsonCodec.decode(text) as { a: object; polluted?: unknown }
    expect(value.polluted).toBe(undefined)
    expect(({} as { polluted?: unknown }).polluted).toBe(undefined)
    expect(Object.getPrototypeOf(value.a)).toBe(Object.prototype)
    expect(jsonCodec.encode(value)).toBe(text)
    // On the slow path too.
    const slow = jsonCodec.encode({ value, date: { toJSON: () => 1 } })
    expect(slow).toBe(`{"value":${text},"date":1}`)
  })

  it('reads bytes as text', () => {
    expect(jsonCodec.decode(Buffer.from('{"a":"é"}'))).toEqual({ a: 'é' })
    expect(jsonCodec.decode(new Uint8Array())).toBe(undefined)
  })
})

describe('encodePayload', () => {
  const codec = (encode: Codec['encode']): Codec => ({ id: 'mine', encode, decode: (encoded) => encoded })

  it('takes up to the limit, in bytes of UTF-8, and refuses more with both sizes', () => {
    expect(encodePayload(jsonCodec, 'aaaa', 'data', 6)).toBe('"aaaa"')
    expect(encodePayload(jsonCodec, '€', 'data', 5)).toBe('"€"')
    expect(encodePayload(jsonCodec, '😀', 'data', 6)).toBe('"😀"')
    for (const value of ['€€', 'aaaaa']) {
      expect(() => encodePayload(jsonCodec, value, 'result', 6)).toThrow(
        expect.objectContaining({ name: 'PayloadError', code: 'PAYLOAD_TOO_LARGE' }),
      )
    }
    expect(() => encodePayload(jsonCodec, '€€', 'result', 6)).toThrow(
      'result: expected at most 6 bytes when encoded, got 8',
    )
    const bytes = new Uint8Array(10)
    expect(
      encodePayload(
        codec(() => bytes),
        0,
        'data',
        10,
      ),
    ).toBe(bytes)
    expect(() =>
      encodePayload(
        codec(() => bytes),
        0,
        'data',
        9,
      ),
    ).toThrow('at most 9 bytes when encoded, got 10')
  })

  it('names what it encodes', () => {
    expect(() => encodePayload(jsonCodec, { a: 1n }, 'result', 100)).toThrow('result.a: ')
  })

  it('wraps what a codec throws, except our own errors', () => {
    const cause = new RangeError('no')
    const wrap = (error: unknown): unknown => {
      try {
        return encodePayload(
          codec(() => {
            throw error
          }),
          0,
          'data',
          100,
        )
      } catch (caught) {
        return caught
      }
    }
    expect(wrap(cause)).toMatchObject({
      name: 'PayloadError',
      code: 'PAYLOAD_INVALID',
      message: 'data: the codec "mine" failed: no',
      cause,
    })
    expect(wrap('text')).toMatchObject({ code: 'PAYLOAD_INVALID', cause: 'text' })
    const own = new NeoTaskError('ILLEGAL_STATE', 'mine')
    expect(wrap(own)).toBe(own)
  })

  it.each([undefined, null, 5, {}, Promise.resolve('x')])('refuses a codec that returns %o', (returned) => {
    expect(() =>
      encodePayload(
        codec(() => returned as string),
        0,
        'data',
        100,
      ),
    ).toThrow('data: the codec "mine" must return a string or a Uint8Array, got ')
  })

  it('measures text as UTF-8', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(encodedSize(text)).toBe(Buffer.from(text).byteLength)
      }),
    )
    expect(encodedSize(new Uint8Array(3))).toBe(3)
  })
})
