import { describe, expect, it, vi } from 'vitest'
import { systemClock } from './clock.js'
import { LoadMonitor, resolveLoadLimit, type LoadLimits, type Overload } from './load-limit.js'
import { ManualClock } from './testing/manual-clock.js'

const LIMITS: LoadLimits = { eventLoopDelay: 100, memory: 0.8 }

/** A monitor whose measures are those of the test. */
function setUp(limits = LIMITS) {
  const clock = new ManualClock()
  const load = { eventLoopDelay: 0, memory: 0, open: false }
  const told: string[] = []
  const changed = (overload: Overload | undefined): void => {
    told.push(
      `${clock.monotonic()}: ${overload === undefined ? 'well' : `${overload.measure} ${overload.value}`}`,
    )
  }
  const monitor = new LoadMonitor(limits, { clock, changed }, () => {
    load.open = true
    return {
      eventLoopDelay: () => load.eventLoopDelay,
      memory: () => load.memory,
      close: () => (load.open = false),
    }
  })
  return { clock, load, told, monitor }
}

function block(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

describe('LoadMonitor', () => {
  it('is over a limit with the first look that is, and tells it once', () => {
    const { clock, load, told, monitor } = setUp()
    monitor.start()
    monitor.start()
    clock.advance(2000)
    expect([told, monitor.overload]).toEqual([[], undefined])
    load.eventLoopDelay = 101
    clock.advance(499)
    expect(told).toEqual([])
    clock.advance(1)
    expect(told).toEqual(['2500: eventLoopDelay 101'])
    load.eventLoopDelay = 300
    clock.advance(5000)
    expect(told).toHaveLength(1)
    expect(monitor.overload).toEqual({ measure: 'eventLoopDelay', value: 300, limit: 100 })
  })

  it('is well again only after two seconds below 80 % of every limit', () => {
    const { clock, load, told, monitor } = setUp()
    monitor.start()
    Object.assign(load, { memory: 0.81 })
    clock.advance(500)
    Object.assign(load, { memory: 0.7, eventLoopDelay: 0 })
    clock.advance(10_000)
    expect(told).toEqual(['500: memory 0.81'])
    Object.assign(load, { memory: 0.6, eventLoopDelay: 90 })
    clock.advance(10_000)
    Object.assign(load, { memory: 0.6, eventLoopDelay: 79 })
    clock.advance(1500)
    load.eventLoopDelay = 85
    clock.advance(500)
    load.eventLoopDelay = 10
    clock.advance(2000)
    expect(told).toHaveLength(1)
    clock.advance(500)
    expect(told).toEqual(['500: memory 0.81', '25000: well'])
    expect(monitor.overload).toBeUndefined()
  })

  it('does not flap at a load that changes around the limit', () => {
    const { clock, load, told, monitor } = setUp()
    monitor.start()
    for (let look = 0; look < 1000; look++) {
      load.eventLoopDelay = look % 3 === 0 ? 130 : 60
      clock.advance(500)
    }
    expect(told).toHaveLength(1)
  })

  it('looks only at what has a limit, and measures nothing before the start and after the stop', () => {
    const { clock, load, told, monitor } = setUp({ eventLoopDelay: 100 })
    load.memory = 1
    expect([load.open, clock.pending]).toEqual([false, 0])
    monitor.start()
    clock.advance(1000)
    expect([load.open, told]).toEqual([true, []])
    load.eventLoopDelay = 500
    clock.advance(500)
    monitor.stop()
    monitor.stop()
    expect([load.open, clock.pending, monitor.overload]).toEqual([false, 0, undefined])
  })

  it.each([
    ['many turns of 300 ms', 300, 4],
    ['turns that are longer than the time between two looks', 700, 3],
  ])('finds this process behind: %s', async (_, turn, turns) => {
    const told: (Overload | undefined)[] = []
    const limits = { eventLoopDelay: 80 }
    const monitor = new LoadMonitor(limits, {
      clock: systemClock,
      changed: (overload) => told.push(overload),
    })
    monitor.start()
    await new Promise((resolve) => setTimeout(resolve, 100))
    for (let n = 0; n < turns; n++) {
      block(turn)
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    await vi.waitFor(() => expect(told[0]).toMatchObject({ measure: 'eventLoopDelay', limit: 80 }))
    expect(told[0]!.value).toBeGreaterThan(80)
    await vi.waitFor(() => expect(told).toEqual([expect.anything(), undefined]), { timeout: 10_000 })
    monitor.stop()
  })

  it('measures a part of the memory', async () => {
    const told: (Overload | undefined)[] = []
    const host = { clock: systemClock, changed: (overload: Overload | undefined) => told.push(overload) }
    const monitor = new LoadMonitor({ memory: 0.000_001 }, host)
    monitor.start()
    await vi.waitFor(() => expect(told).toHaveLength(1), { timeout: 5000 })
    expect(told[0]!.value).toBeGreaterThan(0.001)
    expect(told[0]!.value).toBeLessThan(1)
    monitor.stop()
  })
})

describe('resolveLoadLimit', () => {
  it('takes one limit or both', () => {
    expect(resolveLoadLimit({ eventLoopDelay: '1s' })).toEqual({ eventLoopDelay: 1000 })
    expect(resolveLoadLimit({ memory: 0.9 })).toEqual({ memory: 0.9 })
  })

  it.each([
    [{}, /loadLimit: expected eventLoopDelay, memory, or both/],
    ['high', /loadLimit: expected \{ eventLoopDelay, memory \}, got "high"/],
    [{ memory: 85 }, /loadLimit\.memory: expected a number above 0 and below 1, got 85/],
    [{ memory: '0.8' }, /loadLimit\.memory/],
    [{ eventLoopDelay: 0 }, /loadLimit\.eventLoopDelay: expected a duration/],
    [{ cpu: 0.5 }, /loadLimit\.cpu: expected no such option/],
  ])('refuses %j', (given, message) => {
    expect(() => resolveLoadLimit(given as never)).toThrow(message)
  })
})
