import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Clock, Timer } from './clock.js'
import { ManualClock } from './testing/manual-clock.js'
import { TimeWheel } from './time-wheel.js'

const DAY = 24 * 3600 * 1000

function fail(error: unknown): void {
  throw error
}

/** Long sleeps: time passes, and no timer of the clock fires until it is over. */
function jump(clock: ManualClock, wheel: TimeWheel, ms: number): void {
  // While the wheel runs an action it has no timer.
  wheel.add(1, () => clock.advance(ms))
  clock.advance(1)
  clock.advance(1)
}

describe('TimeWheel', () => {
  it('fires once, not early and not late', () => {
    const clock = new ManualClock({ monotonic: 123.4 })
    const wheel = new TimeWheel(clock, fail)
    const fired: number[] = []
    wheel.add(50, () => fired.push(clock.monotonic()))
    expect(wheel.size).toBe(1)
    clock.advance(49.9)
    expect(fired).toEqual([])
    clock.advance(1.1)
    expect(fired).toHaveLength(1)
    expect(wheel.size).toBe(0)
    clock.advance(DAY)
    expect(fired).toHaveLength(1)
  })

  it('counts a delay below 1 as 1 and refuses what is no finite number', () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    let fired = 0
    for (const delay of [0, -10, 0.3]) wheel.add(delay, () => fired++)
    expect(fired).toBe(0)
    clock.advance(1)
    expect(fired).toBe(3)
    for (const delay of [NaN, Infinity, -Infinity])
      expect(() => wheel.add(delay, () => {})).toThrow(RangeError)
    expect(wheel.size).toBe(0)
  })

  it.each([2 ** 30 - 1, 2 ** 30, 2 ** 31, 2 ** 31 + 12_345, 365 * DAY, 400 * 365 * DAY])(
    'waits for %d ms',
    (delay) => {
      const clock = new ManualClock({ monotonic: 7 })
      const wheel = new TimeWheel(clock, fail)
      clock.advance(1000)
      const fired: number[] = []
      wheel.add(delay, () => fired.push(clock.monotonic()))
      clock.advance(delay - 1)
      expect(fired).toEqual([])
      clock.advance(1)
      expect(fired).toEqual([1007 + delay])
    },
  )

  it('fires each at its time and in order, under any mix of adding, cancelling and waiting', () => {
    const delay = fc.oneof(
      fc.integer({ min: 0, max: 70 }),
      fc.integer({ min: 0, max: 5000 }),
      fc.integer({ min: 0, max: 2 ** 33 }),
      fc.double({ min: 0, max: 100, noNaN: true }),
      // At and around the edges of the slots.
      fc
        .tuple(fc.integer({ min: 0, max: 33 }), fc.integer({ min: -2, max: 2 }))
        .map(([power, off]) => Math.max(0, 2 ** power + off)),
    )
    const operation = fc.oneof(
      { weight: 5, arbitrary: fc.record({ type: fc.constant('add' as const), delay }) },
      { weight: 2, arbitrary: fc.record({ type: fc.constant('cancel' as const), which: fc.nat() }) },
      { weight: 3, arbitrary: fc.record({ type: fc.constant('wait' as const), ms: delay }) },
    )
    fc.assert(
      fc.property(
        fc.double({ min: 0, max: 1e6, noNaN: true }),
        fc.array(operation, { maxLength: 100, size: 'max' }),
        (origin, operations) => {
          const clock = new ManualClock({ monotonic: origin })
          const wheel = new TimeWheel(clock, fail)
          const fired: number[] = []
          const late: number[] = []
          const timers: { due: number; tick: number; timer: Timer; cancelled: boolean }[] = []
          for (const op of operations) {
            if (op.type === 'add') {
              const index = timers.length
              const due = clock.monotonic() + Math.max(1, op.delay)
              const timer = wheel.add(op.delay, () => {
                fired.push(index)
                late.push(clock.monotonic() - due)
              })
              timers.push({ due, tick: Math.ceil(due - origin), timer, cancelled: false })
            } else if (op.type === 'cancel' && timers.length > 0) {
              const index = op.which % timers.length
              const chosen = timers[index] as (typeof timers)[number]
              chosen.timer.cancel()
              if (!fired.includes(index)) chosen.cancelled = true
            } else if (op.type === 'wait') clock.advance(op.ms)
            expect(clock.pending).toBeLessThanOrEqual(1)
            const waiting = timers.filter((timer, index) => !timer.cancelled && !fired.includes(index))
            expect(wheel.size).toBe(waiting.length)
            // A due time is rounded up to a whole ms of the wheel.
            expect(waiting.every(({ due }) => due > clock.monotonic() - 1.001)).toBe(true)
          }
          clock.advance(2 ** 35)
          const expected = [...timers.keys()].filter((index) => !timers[index]?.cancelled)
          expected.sort((a, b) => (timers[a]?.tick ?? 0) - (timers[b]?.tick ?? 0) || a - b)
          expect(fired).toEqual(expected)
          // A float's last digits: 2^35 leaves 2^-18 of a ms.
          expect(late.every((ms) => ms >= -1e-4 && ms < 1.001)).toBe(true)
        },
      ),
    )
  })

  it('is not a ms late because the difference of two times lacks their last digits', () => {
    const clock = new ManualClock({ monotonic: 999_999.998399288 })
    const wheel = new TimeWheel(clock, fail)
    clock.advance(32_768)
    clock.advance(2 ** -34)
    const due = clock.monotonic() + 16_384
    let late = NaN
    wheel.add(16_384, () => (late = clock.monotonic() - due))
    clock.advance(20_000)
    expect(late).toBeGreaterThan(-1e-4)
    expect(late).toBeLessThan(1.001)
  })

  it('fires everything due in order after a long sleep, and then goes on', () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    const fired: number[] = []
    const delays = [3, 5000, 40, 2 ** 31, 33, 1024, 60_000, 5001, 2 ** 30 + 5, 4_000_000]
    for (const delay of delays) wheel.add(delay, () => fired.push(delay))
    jump(clock, wheel, 2 ** 32)
    expect(fired).toEqual(delays.toSorted((a, b) => a - b))
    wheel.add(10, () => fired.push(-1))
    clock.advance(10)
    expect(fired.at(-1)).toBe(-1)
  })

  it('is not touched by steps of the wall clock', () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    let fired = 0
    wheel.add(1000, () => fired++)
    clock.step(10 * DAY)
    clock.advance(999)
    expect(fired).toBe(0)
    clock.step(-20 * DAY)
    clock.advance(1)
    expect(fired).toBe(1)
  })

  it('lets actions add and cancel', () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    const fired: string[] = []
    const doomed: Timer[] = []
    wheel.add(10, () => {
      fired.push('first')
      for (const timer of doomed) timer.cancel()
      wheel.add(0, () => fired.push(`added, at ${clock.monotonic()}`))
    })
    doomed.push(wheel.add(10, () => fired.push('twin')))
    wheel.add(10, () => fired.push('third'))
    doomed.push(wheel.add(500, () => fired.push('later')))
    clock.advance(1000)
    expect(fired).toEqual(['first', 'third', 'added, at 11'])
    expect(wheel.size).toBe(0)
  })

  it('fires the others when an action throws, also when the reporting throws', () => {
    const clock = new ManualClock()
    const reported: unknown[] = []
    const wheel = new TimeWheel(clock, (error) => {
      reported.push(error)
      throw new Error('the reporter is broken too')
    })
    let fired = 0
    const oops = new Error('oops')
    wheel.add(5, () => {
      throw oops
    })
    wheel.add(5, () => fired++)
    wheel.add(6, () => fired++)
    clock.advance(10)
    expect(reported).toEqual([oops])
    expect(fired).toBe(2)
  })

  it('forgets a cancelled timer; cancelling twice or late is harmless', () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    let fired = 0
    const cancelled = wheel.add(10, () => fired++)
    const other = wheel.add(10, () => fired++)
    cancelled.cancel()
    cancelled.cancel()
    expect(wheel.size).toBe(1)
    clock.advance(10)
    other.cancel()
    expect([fired, wheel.size]).toEqual([1, 0])
  })

  it('sleeps until the next occupied slot, and has no timer while it is empty', async () => {
    const clock = new ManualClock()
    let wakes = 0
    const counting: Clock = {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      after: (delay, action, options) =>
        clock.after(
          delay,
          () => {
            wakes++
            action()
          },
          options,
        ),
    }
    const wheel = new TimeWheel(counting, fail)
    expect(clock.pending).toBe(0)
    wheel.add(3_600_000, () => {})
    clock.advance(DAY)
    // Once for each level at most, although an hour has 3 600 000 slots.
    expect(wakes).toBeLessThanOrEqual(6)
    expect(clock.pending).toBe(0)

    wakes = 0
    wheel.add(20, () => {})
    clock.advance(DAY)
    expect(wakes).toBeLessThanOrEqual(2)

    // Also when it slept for long: a short delay is near the hand then.
    wheel.add(3_600_000, () => {})
    clock.advance(1_800_000 - (clock.monotonic() % 32))
    wakes = 0
    wheel.add(5, () => {})
    clock.advance(5)
    expect(wakes).toBe(1)
    clock.advance(DAY)

    wheel.add(50, () => {}).cancel()
    await clock.settle()
    expect(clock.pending).toBe(0)
    wheel.add(50, () => {})
    clock.advance(50)
    expect(wheel.size).toBe(0)
  })

  it('keeps the timer of the clock when it is filled again within a turn', async () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    let fired = 0
    wheel.add(50, () => fired++).cancel()
    wheel.add(50, () => fired++)
    await clock.settle()
    expect(clock.pending).toBe(1)
    clock.advance(50)
    expect(fired).toBe(1)
  })

  it('holds the process only while one of its timers does', async () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    wheel.add(10, () => {})
    expect([clock.pending, clock.holding]).toEqual([1, 0])
    const held = wheel.add(1000, () => {}, { hold: true })
    expect([clock.pending, clock.holding]).toEqual([1, 1])
    clock.advance(10)
    expect([clock.pending, clock.holding]).toEqual([1, 1])
    wheel.add(2000, () => {})
    held.cancel()
    expect([clock.pending, clock.holding]).toEqual([1, 0])
    wheel.add(5, () => {}, { hold: true })
    clock.advance(5)
    expect([clock.pending, clock.holding]).toEqual([1, 0])
  })

  it('fires nothing after close, also when an action closes it', () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    const fired: string[] = []
    wheel.add(10, () => {
      fired.push('closer')
      wheel.close()
    })
    const twin = wheel.add(10, () => fired.push('twin'))
    wheel.add(11, () => fired.push('later'))
    wheel.add(2 ** 40, () => fired.push('far'))
    clock.advance(2 ** 41)
    expect(fired).toEqual(['closer'])
    twin.cancel()
    wheel.close()
    expect([wheel.size, clock.pending]).toEqual([0, 0])
    expect(() => wheel.add(1, () => {})).toThrow('closed')
  })

  it('holds many timers', () => {
    const clock = new ManualClock()
    const wheel = new TimeWheel(clock, fail)
    let fired = 0
    let last = 0
    const action = (): void => {
      fired++
      if (clock.monotonic() < last) throw new Error('out of order')
      last = clock.monotonic()
    }
    const timers: Timer[] = []
    for (let i = 0; i < 200_000; i++) timers.push(wheel.add((i * 7919) % 10_000_000, action))
    for (let i = 0; i < timers.length; i += 2) timers[i]?.cancel()
    expect(wheel.size).toBe(100_000)
    clock.advance(10_000_000)
    expect(fired).toBe(100_000)
  })
})
