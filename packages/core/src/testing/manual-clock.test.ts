import { describe, expect, it } from 'vitest'
import { ManualClock } from './manual-clock.js'

describe('ManualClock', () => {
  it('stands still until it is moved', () => {
    const clock = new ManualClock({ now: 1000, monotonic: 5 })
    let fired = 0
    clock.after(1, () => fired++)
    expect([clock.now(), clock.monotonic(), fired]).toEqual([1000, 5, 0])
    clock.advance(0.5)
    expect([clock.now(), clock.monotonic(), fired]).toEqual([1000, 5.5, 0])
    clock.advance(0.5)
    expect([clock.now(), clock.monotonic(), fired]).toEqual([1001, 6, 1])
  })

  it('comes to whole ms however many parts of them it went', () => {
    const clock = new ManualClock({ now: 1_000_000_000_000 })
    const again = (delay: number): void => {
      clock.after(delay, () => again(Math.min(1000, delay * 1.25)))
    }
    again(100.1)
    for (let seconds = 1; seconds <= 1000; seconds++) {
      clock.advance(1000)
      expect(clock.now()).toBe(1_000_000_000_000 + seconds * 1000)
    }
  })

  it('fires in the order of the due times, each at its own time, equal ones in the order of their making', () => {
    const clock = new ManualClock()
    const seen: [string, number][] = []
    const note = (name: string) => () => seen.push([name, clock.monotonic()])
    clock.after(20, note('c'))
    clock.after(10, note('a'))
    clock.after(10, note('b'))
    clock.after(31, note('later'))
    clock.advance(30)
    expect(seen).toEqual([
      ['a', 10],
      ['b', 10],
      ['c', 20],
    ])
    expect(clock.monotonic()).toBe(30)
    expect(clock.pending).toBe(1)
    expect(clock.nextDueIn).toBe(1)
  })

  it('fires timers that are made while it advances, if they fall due', () => {
    const clock = new ManualClock()
    const seen: number[] = []
    const again = (): void => {
      seen.push(clock.monotonic())
      clock.after(10, again)
    }
    clock.after(10, again)
    clock.advance(35)
    expect(seen).toEqual([10, 20, 30])
  })

  it('never goes back, also when an action advances it further', () => {
    const clock = new ManualClock()
    clock.after(10, () => clock.advance(1000))
    clock.advance(20)
    expect(clock.monotonic()).toBe(1010)
  })

  it('counts a delay below 1 as 1, takes any finite one and refuses others', () => {
    const clock = new ManualClock()
    let fired = 0
    clock.after(-5, () => fired++)
    clock.after(0, () => fired++)
    clock.after(2 ** 40, () => fired++)
    clock.advance(0.9)
    expect(fired).toBe(0)
    clock.advance(0.1)
    expect(fired).toBe(2)
    clock.advance(2 ** 40)
    expect(fired).toBe(3)
    expect(() => clock.after(NaN, () => {})).toThrow(RangeError)
    expect(() => clock.after(Infinity, () => {})).toThrow(RangeError)
    expect(() => clock.advance(-1)).toThrow(RangeError)
  })

  it('forgets a cancelled timer, also when it is cancelled twice, late or by another timer', () => {
    const clock = new ManualClock()
    const seen: string[] = []
    const second = clock.after(2, () => seen.push('second'))
    const first = clock.after(1, () => {
      seen.push('first')
      second.cancel()
    })
    clock.advance(5)
    second.cancel()
    first.cancel()
    expect(seen).toEqual(['first'])
    expect(clock.pending).toBe(0)
  })

  it('steps wall time alone', () => {
    const clock = new ManualClock({ now: 10_000 })
    let fired = 0
    clock.after(10, () => fired++)
    clock.step(-5000)
    expect([clock.now(), clock.monotonic(), fired]).toEqual([5000, 0, 0])
    clock.step(60_000)
    expect([clock.now(), fired]).toEqual([65_000, 0])
    clock.advance(10)
    expect([clock.now(), clock.monotonic(), fired]).toEqual([65_010, 10, 1])
  })

  it('lets promises and immediates run in between when it advances asynchronously', async () => {
    const clock = new ManualClock()
    const seen: number[] = []
    const loop = async (): Promise<void> => {
      for (let turn = 0; turn < 3; turn++) {
        await new Promise<void>((resolve) => clock.after(10, resolve))
        await new Promise((resolve) => setImmediate(resolve))
        seen.push(clock.monotonic())
      }
    }
    const done = loop()
    await clock.advanceAsync(25)
    expect(seen).toEqual([10, 20])
    await clock.advanceAsync(25)
    await done
    expect(seen).toEqual([10, 20, 30])
    expect(clock.monotonic()).toBe(50)
  })

  it('counts the timers that would keep a process alive', () => {
    const clock = new ManualClock()
    clock.after(1, () => {})
    const held = clock.after(1, () => {}, { hold: true })
    expect([clock.pending, clock.holding]).toEqual([2, 1])
    held.cancel()
    expect([clock.pending, clock.holding]).toEqual([1, 0])
  })

  it('leaps: all that came due meanwhile fires at the new time, in order', () => {
    const clock = new ManualClock()
    const fired: string[] = []
    const note = (name: string) => () => fired.push(`${name} at ${clock.monotonic()}`)
    clock.after(20, note('second'))
    clock.after(10, () => {
      note('first')()
      clock.after(5, note('later'))
    })
    clock.leap(30)
    expect(fired).toEqual(['first at 30', 'second at 30'])
    clock.leap(5)
    expect(fired.at(-1)).toBe('later at 35')
  })

  it('tells the first timer that is no poll', () => {
    const clock = new ManualClock()
    clock.after(10, () => {}, { poll: true })
    expect([clock.nextDueIn, clock.nextEventIn]).toEqual([10, undefined])
    clock.after(20, () => {})
    expect([clock.nextDueIn, clock.nextEventIn]).toEqual([10, 20])
  })
})
