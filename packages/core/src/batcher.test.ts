import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Batcher, type BatcherOptions } from './batcher.js'
import { type Clock, systemClock } from './clock.js'
import { NeoTaskError } from './errors.js'
import { ManualClock } from './testing/manual-clock.js'

interface Call {
  readonly items: number[]
  readonly array: number[]
  answer(results?: readonly string[]): void
  refuse(error: unknown): void
}

/** A batcher whose runs the test answers. */
function setUp(options: Partial<BatcherOptions<number, string>> = {}) {
  const clock = new ManualClock()
  const calls: Call[] = []
  const batcher = new Batcher<number, string>({
    run: (items) =>
      new Promise((resolve, reject) => {
        calls.push({
          items: [...items],
          array: items,
          answer: (results = items.map(String)) => resolve(results),
          refuse: reject,
        })
      }),
    maxItems: 100,
    maxWaiting: 1000,
    timeout: 10_000,
    clock,
    ...options,
  })
  const call = (index: number): Call => {
    const found = calls[index]
    if (found === undefined) throw new Error(`there was no run ${index}`)
    return found
  }
  const sent = (): number[][] => calls.map((each) => each.items)
  return { clock, batcher, calls, call, sent }
}

/** What became of a promise, as far as it is known. */
function watch<T>(promise: Promise<T>): { value?: T; error?: unknown; settled: boolean } {
  const seen: { value?: T; error?: unknown; settled: boolean } = { settled: false }
  promise.then(
    (value) => Object.assign(seen, { value, settled: true }),
    (error: unknown) => Object.assign(seen, { error, settled: true }),
  )
  return seen
}

const busy = new NeoTaskError('STORAGE_UNAVAILABLE', 'busy', { retryable: true })

describe('Batcher', () => {
  it('sends what was added within one turn as one batch, and gives each its result', async () => {
    const { batcher, clock, call, sent } = setUp()
    const first = batcher.add(1)
    const second = Promise.resolve().then(() => batcher.add(2))
    expect(sent()).toEqual([])
    expect(batcher.waiting).toBe(1)
    await clock.settle()
    expect(sent()).toEqual([[1, 2]])
    expect(batcher.waiting).toBe(0)
    call(0).answer(['one', 'two'])
    expect(await Promise.all([first, second])).toEqual(['one', 'two'])
  })

  it('sends what is added meanwhile as the next batch, when the one in flight is over', async () => {
    const { batcher, clock, call, sent } = setUp()
    const first = watch(batcher.add(1))
    await clock.settle()
    void batcher.add(2)
    await clock.settle()
    void batcher.add(3)
    await clock.advanceAsync(5000)
    expect(sent()).toEqual([[1]])
    expect(batcher.waiting).toBe(2)
    call(0).answer()
    await clock.settle()
    expect(first.value).toBe('1')
    expect(sent()).toEqual([[1], [2, 3]])
  })

  it('lets callers whose promises just resolved ride in the next batch', async () => {
    const { batcher, clock, call, sent } = setUp()
    const loop = async (item: number): Promise<void> => {
      await batcher.add(item)
      await batcher.add(item + 10)
    }
    void loop(1)
    await clock.settle()
    void loop(2)
    call(0).answer()
    await clock.settle()
    expect(sent()).toEqual([[1], [2, 11]])
  })

  it('starts no batch larger or heavier than the limits, but sends a single item whatever it is', async () => {
    const { batcher, clock, call, calls, sent } = setUp({
      maxItems: 3,
      count: (item) => (item >= 100 ? 5 : 1),
      size: (item) => item,
      maxSize: 50,
    })
    for (const item of [1, 2, 3, 4, 100, 5, 40, 20, 60, 6]) void batcher.add(item)
    expect(batcher.waiting).toBe(14)
    for (let batch = 0; batch < 6; batch++) {
      await clock.settle()
      call(batch).answer()
    }
    await clock.settle()
    expect(sent()).toEqual([[1, 2, 3], [4], [100], [5, 40], [20], [60], [6]])
    expect(calls).toHaveLength(7)
  })

  it('keeps the order and no more batches in flight than it may, whatever the sizes and the times', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ turns: fc.nat(2), burst: fc.integer({ min: 1, max: 30 }) }), { maxLength: 10 }),
        fc.integer({ min: 1, max: 10 }),
        fc.nat(3),
        fc.integer({ min: 1, max: 3 }),
        async (bursts, maxItems, slowness, flights) => {
          let running = 0
          const seen: number[] = []
          const { batcher, clock } = setUp({
            maxItems,
            flights,
            run: async (items) => {
              expect(++running).toBeLessThanOrEqual(flights)
              expect(items.length).toBeLessThanOrEqual(maxItems)
              seen.push(...items)
              for (let turn = 0; turn < slowness; turn++)
                await new Promise((resolve) => setImmediate(resolve))
              running--
              return items.map(String)
            },
          })
          let next = 0
          const results: Promise<string>[] = []
          for (const { turns, burst } of bursts) {
            for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve))
            for (let i = 0; i < burst; i++) results.push(batcher.add(next++))
          }
          expect(await Promise.all(results)).toEqual(results.map((_, index) => String(index)))
          expect(seen).toEqual([...seen.keys()])
          expect(seen).toHaveLength(next)
          expect(clock.pending).toBe(0)
        },
      ),
      { numRuns: 50 },
    )
  })

  it('divides what waits among the batches that may start, unless that is little', async () => {
    const { batcher, clock, call, sent } = setUp({ flights: 2 })
    for (let item = 0; item < 90; item++) void batcher.add(item)
    await clock.settle()
    expect(sent().map((items) => items.length)).toEqual([45, 45])
    for (let item = 90; item < 190; item++) void batcher.add(item)
    await clock.settle()
    expect(sent()).toHaveLength(2)
    call(1).answer()
    await clock.settle()
    // One may start, so it takes all that its size allows.
    expect(sent().map((items) => items.length)).toEqual([45, 45, 100])
    call(0).answer()
    call(2).answer()
    await clock.settle()
    for (let item = 190; item < 215; item++) void batcher.add(item)
    await clock.settle()
    expect(sent().flat()).toEqual([...Array(215).keys()])
    expect(sent().map((items) => items.length)).toEqual([45, 45, 100, 20, 5])
  })

  it('settles each of two batches at its own deadline, and repeats only the one that failed', async () => {
    const { batcher, clock, call, sent } = setUp({ flights: 2 })
    const first = watch(batcher.add(1))
    await clock.advanceAsync(4000)
    const second = watch(batcher.add(2))
    await clock.settle()
    expect(sent()).toEqual([[1], [2]])
    call(1).refuse(busy)
    await clock.advanceAsync(20)
    expect(sent()).toEqual([[1], [2], [2]])
    await clock.advanceAsync(5980)
    expect(first.error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', uncertain: true })
    expect(second.settled).toBe(false)
    const third = watch(batcher.add(3))
    await clock.settle()
    expect(sent()).toEqual([[1], [2], [2], [3]])
    call(3).answer()
    await clock.advanceAsync(4000)
    expect(third.value).toBe('3')
    expect(second.error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', uncertain: true })
    expect(clock.pending).toBe(0)
    await batcher.idle()
  })

  it('has no timer while idle, one while anything waits, and lets that hold the process', async () => {
    const { batcher, clock, call } = setUp()
    expect(clock.pending).toBe(0)
    for (let item = 0; item < 10; item++) void batcher.add(item)
    await clock.settle()
    for (let item = 0; item < 10; item++) void batcher.add(item)
    expect([clock.pending, clock.holding]).toEqual([1, 1])
    call(0).answer()
    await clock.settle()
    expect(clock.pending).toBe(1)
    call(1).answer()
    await clock.settle()
    expect(clock.pending).toBe(0)
  })

  it('refuses more than may wait, and takes it when there is room again', async () => {
    const { batcher, clock, call, sent } = setUp({ maxWaiting: 3, count: (item) => item })
    const waiting = [batcher.add(1), batcher.add(2)]
    await expect(batcher.add(1)).rejects.toMatchObject({
      code: 'BACKPRESSURE',
      retryable: true,
      uncertain: false,
    })
    await clock.settle()
    // What is in flight does not wait. An empty buffer takes any item.
    waiting.push(batcher.add(50))
    await expect(batcher.add(1)).rejects.toMatchObject({ code: 'BACKPRESSURE' })
    call(0).answer()
    await clock.settle()
    call(1).answer()
    await Promise.all(waiting)
    expect(sent()).toEqual([[1, 2], [50]])
  })

  it('gives a rejection that is not retryable to every item of that batch, and goes on', async () => {
    const { batcher, clock, call } = setUp()
    const first = [watch(batcher.add(1)), watch(batcher.add(2))]
    await clock.settle()
    const second = watch(batcher.add(3))
    const error = new Error('broken')
    call(0).refuse(error)
    await clock.settle()
    expect(first.map((each) => each.error)).toEqual([error, error])
    call(1).answer()
    await clock.settle()
    expect(second.value).toBe('3')
  })

  it('treats a run that throws like one that rejects', async () => {
    const error = new Error('thrown')
    const { batcher } = setUp({
      run: () => {
        throw error
      },
    })
    await expect(batcher.add(1)).rejects.toBe(error)
    await batcher.idle()
  })

  it('rejects when there are not as many results as items', async () => {
    const { batcher, clock, call } = setUp()
    const both = [watch(batcher.add(1)), watch(batcher.add(2))]
    await clock.settle()
    call(0).answer(['one'])
    await clock.settle()
    for (const each of both) {
      expect(each.error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', uncertain: true })
    }
  })

  it('repeats the identical batch after a retryable rejection, with growing pauses', async () => {
    const { batcher, clock, calls, call } = setUp({ timeout: 60_000 })
    const both = [watch(batcher.add(1)), watch(batcher.add(2))]
    await clock.settle()
    const later = watch(batcher.add(3))
    const pauses: number[] = []
    for (let tries = 1; tries <= 10; tries++) {
      call(tries - 1).refuse(busy)
      await clock.settle()
      const before = clock.monotonic()
      while (calls.length === tries) await clock.advanceAsync(1)
      pauses.push(clock.monotonic() - before)
    }
    for (const { items, array } of calls) {
      expect(items).toEqual([1, 2])
      expect(array).toBe(call(0).array)
    }
    expect(pauses[0]).toBeGreaterThanOrEqual(5)
    expect(pauses[0]).toBeLessThanOrEqual(11)
    expect(pauses[4]).toBeGreaterThanOrEqual(80)
    for (const pause of pauses.slice(7)) {
      expect(pause).toBeGreaterThanOrEqual(250)
      expect(pause).toBeLessThanOrEqual(501)
    }
    call(10).answer()
    await clock.settle()
    expect(both.map((each) => each.value)).toEqual(['1', '2'])
    call(11).answer()
    await clock.settle()
    expect(later.value).toBe('3')
    expect(clock.pending).toBe(0)
  })

  it('gives up repeating at the deadline, says why, and goes on with the others', async () => {
    const { batcher, clock, calls, call, sent } = setUp({ timeout: 1000 })
    const first = watch(batcher.add(1))
    await clock.advanceAsync(600)
    const second = watch(batcher.add(2))
    call(0).refuse(busy)
    for (let ms = 600; ms < 1000; ms++) {
      await clock.advanceAsync(1)
      if (calls.length > 1 && sent().at(-1)?.[0] === 1) calls.at(-1)?.refuse(busy)
    }
    await clock.settle()
    expect(first.error).toMatchObject({
      name: 'StorageUnavailableError',
      code: 'STORAGE_UNAVAILABLE',
      retryable: true,
      uncertain: true,
      cause: busy,
    })
    expect(second.settled).toBe(false)
    expect(sent().at(-1)).toEqual([2])
    calls.at(-1)?.answer()
    await clock.settle()
    expect(second.value).toBe('2')
    expect(clock.pending).toBe(0)
  })

  it('rejects each item at its own deadline when a run never settles, and then runs the next', async () => {
    const { batcher, clock, call, sent } = setUp({ timeout: 1000, maxItems: 2 })
    const first = watch(batcher.add(1))
    await clock.advanceAsync(100)
    const second = watch(batcher.add(2))
    await clock.advanceAsync(899)
    expect([first.settled, second.settled]).toEqual([false, false])
    await clock.advanceAsync(1)
    expect(first.error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', uncertain: true, retryable: true })
    expect(sent()).toEqual([[1], [2]])

    // The late answer of the first must not be taken for that of the second.
    call(0).answer(['late'])
    await clock.settle()
    expect(second.settled).toBe(false)
    const third = watch(batcher.add(3))
    await clock.settle()
    expect(sent()).toEqual([[1], [2]])
    call(1).answer()
    await clock.settle()
    expect(second.value).toBe('2')
    call(2).answer()
    await batcher.idle()
    await clock.settle()
    expect(third.value).toBe('3')
    expect(clock.pending).toBe(0)
  })

  it('lets some of a batch expire and gives the rest their results', async () => {
    const { batcher, clock, call } = setUp({ timeout: 1000 })
    const blocker = watch(batcher.add(0))
    await clock.settle()
    const early = watch(batcher.add(1))
    await clock.advanceAsync(500)
    const late = watch(batcher.add(2))
    call(0).answer()
    await clock.advanceAsync(500)
    expect(blocker.value).toBe('0')
    expect(early.error).toMatchObject({ uncertain: true })
    expect(late.settled).toBe(false)
    call(1).answer(['one', 'two'])
    await clock.settle()
    expect(late.value).toBe('two')
  })

  it('says of an item that expired before it was sent that it was not', async () => {
    const { batcher, clock, sent } = setUp({ timeout: 1000, maxItems: 1 })
    const first = watch(batcher.add(1))
    const second = watch(batcher.add(2))
    await clock.advanceAsync(1000)
    expect(first.error).toMatchObject({ uncertain: true })
    expect(second.error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', uncertain: false, retryable: true })
    await batcher.idle()
    expect(sent()).toEqual([[1]])
    expect([batcher.waiting, clock.pending]).toEqual([0, 0])
  })

  it('does not send what expired while the loop was too busy for timers', async () => {
    const clock = new ManualClock()
    const late: Clock = {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      after: () => ({ cancel() {} }),
    }
    const { batcher, call, sent } = setUp({ clock: late, timeout: 1000 })
    const first = watch(batcher.add(1))
    await clock.settle()
    const second = watch(batcher.add(2))
    clock.advance(500)
    const third = watch(batcher.add(3))
    clock.advance(600)
    call(0).answer()
    await clock.settle()
    expect(first.value).toBe('1')
    expect(second.error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', uncertain: false })
    expect(sent()).toEqual([[1], [3]])
    call(1).answer()
    await clock.settle()
    expect(third.value).toBe('3')
  })

  it('becomes idle when everything has settled, also what was added meanwhile', async () => {
    const { batcher, clock, call } = setUp()
    await batcher.idle()
    void batcher.add(1)
    const idle = watch(batcher.idle())
    await clock.settle()
    void batcher.add(2)
    call(0).answer()
    await clock.settle()
    expect(idle.settled).toBe(false)
    call(1).answer()
    await clock.settle()
    expect(idle.settled).toBe(true)
    void batcher.add(3)
    const again = watch(batcher.idle())
    await clock.settle()
    expect(again.settled).toBe(false)
  })

  it('carries many items through on the real clock', async () => {
    let runs = 0
    const batcher = new Batcher<number, number>({
      run: (items) => {
        runs++
        return Promise.resolve(items.map((item) => item * 2))
      },
      maxItems: 500,
      maxWaiting: 100_000,
      timeout: 10_000,
      clock: systemClock,
    })
    const results = await Promise.all(Array.from({ length: 50_000 }, (_, item) => batcher.add(item)))
    expect(results).toEqual(results.map((_, item) => item * 2))
    expect(runs).toBe(100)
  })
})
