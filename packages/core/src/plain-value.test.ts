import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodedSize, encodedSizeAtMost, encodePayload, jsonCodec, plainCodec } from './codec.js'
import { PlainValue } from './plain-value.js'

const MIB = 1024 * 1024

/** What comes back, or the message of the error. */
function roundTrip(codec: typeof jsonCodec, value: unknown): unknown {
  try {
    return { value: codec.decode(encodePayload(codec, value, 'data', MIB)) }
  } catch (error) {
    return { message: (error as Error).message }
  }
}

class Point {
  x = 1
  y = -0
  get sum(): number {
    return this.x + this.y
  }
}

describe('PlainValue', () => {
  it('comes back as JSON would bring it back, or is refused in the same words', () => {
    const odd = fc.constantFrom<unknown>(
      ...[new Date(0), new Date(NaN), new Point(), new Map(), -0, NaN, 1n, undefined, null, Symbol('s')],
      ...[{ toJSON: () => 5 }, { a: undefined }, [undefined], Object.create(null), new Uint8Array(2)],
      ...[JSON.parse('{"__proto__":{"a":1},"b":2}'), { [Symbol('key')]: 1, a: 1 }, () => 1, /x/, '\ud800'],
      ...[Object.assign([1], { toJSON: () => 5 }), new Proxy({ a: 1 }, {}), Object.create({ inherited: 1 })],
    )
    const values = fc.anything({ withNullPrototype: true, withDate: true, maxDepth: 4 })
    const mixed = fc.oneof(values, odd, fc.dictionary(fc.string(), fc.oneof(values, odd)), fc.array(odd))
    fc.assert(
      fc.property(mixed, (value) => {
        expect(roundTrip(plainCodec, value)).toStrictEqual(roundTrip(jsonCodec, value))
      }),
      { numRuns: 3000 },
    )
  })

  it('takes at least what it says, in bytes of JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const encoded = plainCodec.encode(value)
        const text = Buffer.byteLength(JSON.stringify(value))
        expect(encodedSize(encoded)).toBe(text)
        expect(encodedSizeAtMost(encoded)).toBeGreaterThanOrEqual(text)
      }),
      { numRuns: 1000 },
    )
  })

  it('is a copy going in and another one at each coming out', () => {
    const given = { list: [{ n: 1 }], n: 1 }
    const encoded = plainCodec.encode(given)
    given.list.push({ n: 2 })
    given.n = 2
    const first = plainCodec.decode(encoded) as typeof given
    first.list.length = 0
    first.n = 3
    expect(plainCodec.decode(encoded)).toEqual({ list: [{ n: 1 }], n: 1 })
    const flat = plainCodec.encode({ n: 1 })
    ;(plainCodec.decode(flat) as { n: number }).n = 5
    expect(plainCodec.decode(flat)).toEqual({ n: 1 })
  })

  it('leaves cycles and depth to the words of JSON', () => {
    const cycle: unknown[] = []
    cycle.push({ cycle })
    expect(PlainValue.of(cycle)).toBeUndefined()
    expect(roundTrip(plainCodec, cycle)).toEqual(roundTrip(jsonCodec, cycle))
  })

  it('is refused beyond the limit by its size in JSON, not by a bound of it', () => {
    const fits = { text: 'x'.repeat(1000) }
    expect(plainCodec.decode(encodePayload(plainCodec, fits, 'data', 1100))).toEqual(fits)
    expect(() => encodePayload(plainCodec, fits, 'data', 1000)).toThrow(
      'data: expected at most 1000 bytes when encoded, got 1011',
    )
  })
})
