/** How many tasks a node claims ahead, and when. */
import { describe, expect, it } from 'vitest'
import { Prefetch, resolvePrefetch, type PrefetchOptions } from './prefetch.js'

const prefetchOf = (options: PrefetchOptions, concurrency = 10): Prefetch =>
  new Prefetch(resolvePrefetch(options), concurrency)

describe('auto', () => {
  it('holds about 20 ms of work, within its bounds', () => {
    const prefetch = prefetchOf('auto')
    expect(prefetch.target).toBe(20)
    for (let n = 0; n < 500; n++) prefetch.ran(2)
    expect(prefetch.target).toBe(100)
    for (let n = 0; n < 500; n++) prefetch.ran(0.01)
    expect(prefetch.target).toBe(500)
    for (let n = 0; n < 500; n++) prefetch.ran(500)
    expect(prefetch.target).toBe(20)
  })

  it('holds nothing ahead of slow tasks, also before the first of them ends', () => {
    const prefetch = prefetchOf('auto')
    prefetch.stall()
    expect(prefetch.target).toBe(0)
    prefetch.ran(10)
    expect(prefetch.target).toBe(20)
    for (let n = 0; n < 500; n++) prefetch.ran(5000)
    expect(prefetch.target).toBe(0)
  })
})

describe('a strategy', () => {
  it('claims when the buffer is half empty, when the interval is over, or on either', () => {
    const ask = (strategy: 'size' | 'time' | 'hybrid', buffered: number, now: number): number => {
      const prefetch = prefetchOf({ size: 10, strategy, interval: 100 })
      prefetch.claimed(0)
      return prefetch.demand(0, buffered, now)
    }
    expect(['size', 'time', 'hybrid'].map((each) => ask(each as 'size', 5, 50))).toEqual([5, 0, 5])
    expect(['size', 'time', 'hybrid'].map((each) => ask(each as 'size', 8, 100))).toEqual([0, 2, 2])
    expect(['size', 'time', 'hybrid'].map((each) => ask(each as 'size', 8, 50))).toEqual([0, 0, 0])
  })

  it('never keeps a free slot waiting', () => {
    const prefetch = prefetchOf({ size: 10, strategy: 'time', interval: 100 })
    prefetch.claimed(0)
    expect(prefetch.demand(2, 1, 1)).toBe(11)
    expect(prefetchOf(0).demand(2, 0, 1)).toBe(2)
    expect(prefetchOf(0).demand(2, 2, 1)).toBe(0)
  })
})
