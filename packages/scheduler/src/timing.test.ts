import { describe, expect, it } from 'vitest'
import { jitterOf, Slots } from './timing.js'

const T = Date.UTC(2026, 0, 1)
const HOUR = 3_600_000

describe('slots of an interval', () => {
  const slots = new Slots({ every: 700, anchor: T })

  it('are anchored, before the anchor too, and never drift', () => {
    expect(slots.preview(T, 3)).toEqual([T + 700, T + 1400, T + 2100])
    expect(slots.next(T - 1)).toBe(T)
    expect(slots.next(T - 701)).toBe(T - 700)
    let slot = T
    for (let n = 1; n <= 100_000; n++) slot = slots.next(slot) ?? 0
    expect(slot).toBe(T + 70_000_000)
  })

  it('lie within the window, both ends included', () => {
    const within = new Slots({ every: 700, anchor: T }, { start: T + 1400, end: T + 2800 })
    expect(within.preview(T - HOUR, 9)).toEqual([T + 1400, T + 2100, T + 2800])
    expect(within.last(T - HOUR, T + HOUR)).toBe(T + 2800)
    expect(within.last(T - HOUR, T + 1399)).toBeUndefined()
  })
})

it('no slot lies behind the last instant of a Date', () => {
  const slots = new Slots({ every: 24 * HOUR, anchor: 8.64e15 - 36 * HOUR })
  expect(slots.preview(8.64e15 - 40 * HOUR, 9)).toEqual([8.64e15 - 36 * HOUR, 8.64e15 - 12 * HOUR])
  expect(slots.last(0, 9e15)).toBe(8.64e15 - 12 * HOUR)
})

describe('the last slot and the newest slots', () => {
  it.each([
    ['every', 24 * HOUR, { every: 90_000, anchor: T + 7 }],
    ['dense', 3 * HOUR, { cron: '* * * * *', zone: 'UTC' }],
    ['uneven', 72 * HOUR, { cron: '0,1,2,30 9-11 * * 1-5', zone: 'UTC' }],
    ['with a pause of months', 72 * HOUR, { cron: '*/20 * * 3 *', zone: 'UTC' }],
    ['seconds', HOUR / 6, { cron: '*/7 * * * * *', zone: 'UTC' }],
  ])('are those that a search from the other end finds: %s', (_, span, timing) => {
    const slots = new Slots(timing)
    let seed = 7
    const random = (most: number): number => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0
      return Math.floor((seed / 2 ** 32) * most)
    }
    for (let turn = 0; turn < 40; turn++) {
      const after = T + random(100 * 24 * HOUR)
      const upTo = after + random(turn % 2 ? span / 50 : span)
      const all: number[] = []
      for (let slot = slots.next(after); slot !== undefined && slot <= upTo; slot = slots.next(slot))
        all.push(slot)
      expect(slots.last(after, upTo)).toBe(all.at(-1))
      expect(slots.newest(after, upTo, 5)).toEqual(all.slice(-5))
    }
  })

  it('are found with few questions, however long ago the other end is', () => {
    const slots = new Slots({ cron: '*/5 * * * *', zone: 'UTC' })
    const start = performance.now()
    const found = slots.newest(T, T + 20 * 365 * 24 * HOUR, 1000)
    expect([found.length, found.at(-1)]).toEqual([1000, T + 20 * 365 * 24 * HOUR])
    // One after the other there would be two million.
    expect(performance.now() - start).toBeLessThan(2000)
  })
})

describe('jitter', () => {
  it('is the same for the same slot, and spread evenly', () => {
    const counts = new Array<number>(10).fill(0)
    for (let n = 0; n < 10_000; n++) {
      const jitter = jitterOf('report', T + n * HOUR, 1000)
      expect(jitter).toBe(jitterOf('report', T + n * HOUR, 1000))
      expect(Number.isInteger(jitter) && jitter >= 0 && jitter < 1000).toBe(true)
      ;(counts[Math.floor(jitter / 100)] as number)++
    }
    expect(Math.min(...counts)).toBeGreaterThan(850)
    expect(Math.max(...counts)).toBeLessThan(1150)
    const others = Array.from({ length: 1000 }, (_, n) => jitterOf(`s${n}`, T, 1000))
    expect(new Set(others).size).toBeGreaterThan(550)
    expect(jitterOf('report', T, 0)).toBe(0)
  })
})
