import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Histogram } from './histogram.js'

const WEEK = 7 * 24 * 3600 * 1000

function recorded(values: Iterable<number>): Histogram {
  const histogram = new Histogram()
  for (const value of values) histogram.record(value)
  return histogram
}

/** Nearest rank, computed from all values. */
function exactPercentile(values: readonly number[], p: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(1, Math.ceil((p / 100) * sorted.length)) - 1] as number
}

// Spread over the magnitudes, which a plain range would not be.
const duration = fc
  .tuple(fc.double({ min: 1, max: 10, noNaN: true }), fc.integer({ min: -3, max: 8 }))
  .map(([mantissa, power]) => Math.min(WEEK, mantissa * 10 ** power))

describe('Histogram', () => {
  it('says 0 for everything while it is empty', () => {
    expect(new Histogram().toJSON()).toEqual({
      count: 0,
      mean: 0,
      min: 0,
      max: 0,
      p50: 0,
      p90: 0,
      p95: 0,
      p99: 0,
    })
  })

  it('knows count, mean, min and max exactly', () => {
    const histogram = recorded([3, 1, 2.5, 100])
    expect([histogram.count, histogram.mean, histogram.min, histogram.max]).toEqual([4, 26.625, 1, 100])
    expect([histogram.percentile(0), histogram.percentile(100)]).toEqual([1, 100])
  })

  it('tells any percentile within 2 %', () => {
    const percent = fc.oneof(
      fc.constantFrom(0, 50, 90, 95, 99, 99.9, 100),
      fc.double({ min: 0, max: 100, noNaN: true }),
    )
    fc.assert(
      fc.property(fc.array(duration, { minLength: 1, maxLength: 300 }), percent, (values, p) => {
        const exact = exactPercentile(values, p)
        const told = recorded(values).percentile(p)
        expect(Math.abs(told - exact) / exact).toBeLessThanOrEqual(0.02)
      }),
      { numRuns: 500 },
    )
  })

  it('keeps to 2 % for every magnitude, at and around the edges of its buckets', () => {
    for (let power = 0; power < 39; power++) {
      for (const factor of [1, 1 + 1e-12, 1.04, 1.5, 1.96, 2 - 1e-12]) {
        const ms = (2 ** power * factor) / 1000
        // Three different values, so that the middle one is not clamped to min or max.
        const told = recorded([ms / 4, ms, ms * 4]).percentile(50)
        expect(Math.abs(told - ms) / ms).toBeLessThanOrEqual(0.02)
      }
    }
  })

  it('counts what lies outside its range as the nearest that lies inside', () => {
    const histogram = recorded([-5, 0, 1e-9, 2 * WEEK, Infinity])
    expect(histogram.count).toBe(5)
    expect(histogram.min).toBe(0)
    expect(histogram.percentile(60)).toBeLessThan(0.0011)
    expect(histogram.percentile(80) / WEEK).toBeCloseTo(1, 1)
    expect(recorded([NaN, 7]).toJSON()).toMatchObject({ count: 1, mean: 7 })
  })

  it('refuses what is no percentage', () => {
    for (const p of [-1, 101, NaN]) expect(() => new Histogram().percentile(p)).toThrow(RangeError)
  })

  it('merges as if all had been recorded in one', () => {
    fc.assert(
      fc.property(fc.array(duration), fc.array(duration), (a, b) => {
        const merged = recorded(a)
        merged.merge(recorded(b))
        const { mean, ...rest } = recorded([...a, ...b]).toJSON()
        expect(merged.toJSON()).toMatchObject(rest)
        expect(merged.mean).toBeCloseTo(mean)
      }),
    )
  })

  it('starts again after a reset', () => {
    const histogram = recorded([1, 2, 3])
    histogram.reset()
    expect(histogram.toJSON()).toEqual(new Histogram().toJSON())
    histogram.record(5)
    expect(histogram.toJSON()).toMatchObject({ count: 1, min: 5, max: 5, p50: 5 })
  })
})
