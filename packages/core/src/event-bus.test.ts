import { describe, expect, it } from 'vitest'
import { EventBus } from './event-bus.js'
import { ManualClock } from './testing/manual-clock.js'

interface Events {
  started: { id: string }
  ended: { id: string; ok: boolean }
}

function setUp(onError?: (error: unknown, type: string) => void) {
  const clock = new ManualClock()
  const errors: [unknown, string][] = []
  const bus = new EventBus<Events>({
    clock,
    onError: (error, type) => {
      errors.push([error, type])
      onError?.(error, type)
    },
  })
  return { clock, errors, bus }
}

describe('EventBus', () => {
  it('calls the listeners of the type in the order of their coming, until they leave', () => {
    const { bus } = setUp()
    const seen: string[] = []
    const leave = bus.on('started', ({ id }) => seen.push(`a ${id}`))
    const second = ({ id }: { id: string }): void => void seen.push(`b ${id}`)
    bus.on('started', second)
    bus.on('ended', () => seen.push('other type'))
    bus.emit('started', { id: '1' })
    leave()
    leave()
    bus.emit('started', { id: '2' })
    bus.off('started', second)
    bus.off('started', second)
    bus.emit('started', { id: '3' })
    expect(seen).toEqual(['a 1', 'b 1', 'b 2'])
  })

  it('gives a listener the event and nothing else', () => {
    const { bus } = setUp()
    const seen: unknown[][] = []
    bus.on('started', (...args: unknown[]) => seen.push(args))
    bus.on('*', (...args: unknown[]) => seen.push(args))
    bus.emit('started', { id: '1' })
    expect(seen).toEqual([[{ id: '1' }], ['started', { id: '1' }]])
  })

  it('calls a listener once that wants it so, also when it causes the next event itself', () => {
    const { bus } = setUp()
    const seen: string[] = []
    bus.once('started', ({ id }) => {
      seen.push(id)
      bus.emit('started', { id: 'inner' })
    })
    bus.once('started', ({ id }) => seen.push(`also ${id}`))
    const off = bus.once('ended', () => seen.push('never'))
    off()
    bus.once('*', (type) => seen.push(type))
    bus.emit('started', { id: '1' })
    bus.emit('started', { id: '2' })
    bus.emit('ended', { id: '1', ok: true })
    expect(seen).toEqual(['1', 'also inner', 'started'])
  })

  it('knows whether anybody hears', () => {
    const { bus } = setUp()
    expect(bus.hears('started')).toBe(false)
    const leave = bus.on('started', () => {})
    expect([bus.hears('started'), bus.hears('ended')]).toEqual([true, false])
    leave()
    expect(bus.hears('started')).toBe(false)
    const leaveAll = bus.on('*', () => {})
    expect([bus.hears('started'), bus.hears('ended')]).toEqual([true, true])
    leaveAll()
    bus.once('ended', () => {})
    bus.emit('ended', { id: '1', ok: true })
    expect(bus.hears('ended')).toBe(false)
  })

  it('tells a listener nothing more once it has left, even within the same event', () => {
    const { bus } = setUp()
    const seen: string[] = []
    bus.on('started', () => leave())
    const leave = bus.on('started', () => seen.push('left'))
    bus.emit('started', { id: '1' })
    expect(seen).toEqual([])
  })

  it('isolates listeners from each other and the emitter, also when the reporting throws', async () => {
    const { bus, errors, clock } = setUp(() => {
      throw new Error('the reporter is broken too')
    })
    const seen: string[] = []
    const oops = new Error('oops')
    bus.on('started', () => {
      throw oops
    })
    bus.on('started', ({ id }) => seen.push(id))
    bus.on('*', () => {
      throw oops
    })
    bus.on('*', (_, { id }) => seen.push(`* ${id}`))
    bus.emit('started', { id: '1' })
    expect(seen).toEqual(['1', '* 1'])
    expect(errors).toEqual([
      [oops, 'started'],
      [oops, 'started'],
    ])
    // It is not called again: what throws at once would throw again.
    await clock.advanceAsync(1000)
    expect(errors).toHaveLength(2)
  })

  it('survives a reporter whose promise rejects', async () => {
    const { bus, clock } = setUp()
    const failing = async (): Promise<void> => {
      throw new Error('later')
    }
    const onError = untyped(failing)
    const other = new EventBus<Events>({ clock, onError })
    other.on('started', () => {
      throw new Error('oops')
    })
    other.emit('started', { id: '1' })
    // An unhandled rejection would fail the run.
    await clock.settle()
    bus.close()
  })

  it('calls a listener again whose promise rejects, and says nothing when that helps', async () => {
    const { bus, errors, clock } = setUp()
    const times: number[] = []
    bus.on('started', async ({ id }) => {
      times.push(clock.monotonic())
      await Promise.resolve()
      if (times.length < 3) throw new Error(`not yet ${id}`)
    })
    bus.emit('started', { id: '1' })
    await clock.advanceAsync(10_000)
    expect(times).toEqual([0, 100, 300])
    expect(errors).toEqual([])
    expect(clock.pending).toBe(0)
  })

  it('reports what failed three times', async () => {
    const { bus, errors, clock } = setUp()
    let calls = 0
    bus.once('*', (type, event) => {
      calls++
      expect([type, event]).toEqual(['started', { id: '1' }])
      // The last one throws at once; that is a failure like the others.
      if (calls === 3) throw new Error('3')
      return Promise.reject(new Error(String(calls)))
    })
    bus.emit('started', { id: '1' })
    await clock.advanceAsync(10_000)
    expect(calls).toBe(3)
    expect(errors).toEqual([[new Error('3'), 'started']])
  })

  it('does not call a listener again that has left, and reports its failure', async () => {
    const { bus, errors, clock } = setUp()
    let calls = 0
    const leave = bus.on('started', () => {
      calls++
      return Promise.reject(new Error('no'))
    })
    bus.emit('started', { id: '1' })
    await clock.advanceAsync(50)
    leave()
    await clock.advanceAsync(1000)
    expect([calls, errors.length]).toEqual([1, 1])

    const leaveAtOnce = bus.on('started', () => Promise.reject(new Error('no')))
    bus.emit('started', { id: '2' })
    leaveAtOnce()
    await clock.settle()
    expect([errors.length, clock.pending]).toEqual([2, 0])
  })

  it('forgets everything when it closes, and reports what would have been repeated', async () => {
    const { bus, errors, clock } = setUp()
    let calls = 0
    bus.on('started', () => {
      calls++
      return Promise.reject(new Error('no'))
    })
    bus.emit('started', { id: '1' })
    await clock.advanceAsync(50)
    bus.close()
    bus.close()
    expect([errors.length, clock.pending]).toEqual([1, 0])
    bus.on('ended', () => calls++)
    bus.emit('started', { id: '2' })
    bus.emit('ended', { id: '2', ok: true })
    expect([calls, bus.hears('started'), bus.hears('ended')]).toEqual([1, false, false])
  })
})

describe('EventBus.events', () => {
  it('gives the events from the call on, in order', async () => {
    const { bus } = setUp()
    bus.emit('started', { id: 'before' })
    const events = bus.events()
    bus.emit('started', { id: '1' })
    bus.emit('ended', { id: '1', ok: true })
    expect(await events.next()).toEqual({
      done: false,
      value: { type: 'started', event: { id: '1' }, dropped: 0 },
    })
    expect((await events.next()).value).toEqual({ type: 'ended', event: { id: '1', ok: true }, dropped: 0 })
    const waiting = [events.next(), events.next()]
    bus.emit('started', { id: '2' })
    bus.emit('started', { id: '3' })
    expect((await Promise.all(waiting)).map(({ value }) => value?.event.id)).toEqual(['2', '3'])
  })

  it('gives only the types asked for, each event once', async () => {
    const { bus } = setUp()
    const events = bus.events({ types: ['ended', 'ended'] })
    expect([bus.hears('started'), bus.hears('ended')]).toEqual([false, true])
    bus.emit('started', { id: '1' })
    bus.emit('ended', { id: '1', ok: true })
    bus.emit('ended', { id: '2', ok: true })
    expect((await events.next()).value?.event.id).toBe('1')
    expect((await events.next()).value?.event.id).toBe('2')
  })

  it('drops the oldest when the reader is too slow, and says how many', async () => {
    const { bus } = setUp()
    const events = bus.events({ capacity: 3 })
    for (let id = 1; id <= 10; id++) bus.emit('started', { id: String(id) })
    const read = async (): Promise<unknown[]> => {
      const { value } = await events.next()
      return [value?.event.id, value?.dropped]
    }
    expect([await read(), await read()]).toEqual([
      ['8', 7],
      ['9', 0],
    ])
    for (let id = 11; id <= 14; id++) bus.emit('started', { id: String(id) })
    expect([await read(), await read(), await read()]).toEqual([
      ['12', 2],
      ['13', 0],
      ['14', 0],
    ])
    for (const capacity of [0, 1.5, NaN]) expect(() => bus.events({ capacity })).toThrow('capacity: expected')
  })

  it('drops the oldest beyond 1000 by default', async () => {
    const { bus } = setUp()
    const events = bus.events()
    for (let id = 0; id < 1001; id++) bus.emit('started', { id: String(id) })
    expect((await events.next()).value).toMatchObject({ event: { id: '1' }, dropped: 1 })
  })

  it('ends when the reader leaves its loop', async () => {
    const { bus } = setUp()
    const events = bus.events()
    bus.emit('started', { id: '1' })
    bus.emit('started', { id: '2' })
    const seen: string[] = []
    for await (const { event } of events) {
      seen.push(event.id)
      break
    }
    expect(seen).toEqual(['1'])
    expect(bus.hears('started')).toBe(false)
    expect(await events.next()).toEqual({ done: true, value: undefined })
  })

  it('ends at once when its signal aborts, and leaves nothing on the signal', async () => {
    const { bus } = setUp()
    const controller = new AbortController()
    const listeners = { added: 0, removed: 0 }
    const { signal } = controller
    const add = signal.addEventListener.bind(signal)
    const remove = signal.removeEventListener.bind(signal)
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      listeners.added++
      add(...args)
    }
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      listeners.removed++
      remove(...args)
    }
    const left = bus.events({ signal })
    await left.return?.()
    expect(listeners).toEqual({ added: 1, removed: 1 })

    const waiting = bus.events({ signal })
    const pending = waiting.next()
    const unread = bus.events({ signal, types: ['started'] })
    controller.abort()
    expect(await pending).toEqual({ done: true, value: undefined })
    bus.emit('started', { id: '1' })
    expect((await unread.next()).done).toBe(true)
    expect(bus.hears('started')).toBe(false)
    expect((await bus.events({ signal }).next()).done).toBe(true)
  })

  it('ends when the bus closes, after what waits for the reader', async () => {
    const { bus } = setUp()
    const events = bus.events()
    const idle = bus.events({ types: ['ended'] })
    const pending = idle.next()
    bus.emit('started', { id: '1' })
    bus.close()
    expect((await events.next()).value?.event.id).toBe('1')
    expect((await events.next()).done).toBe(true)
    expect((await pending).done).toBe(true)
    expect((await bus.events().next()).done).toBe(true)
  })
})

/** As a caller without types would pass it. */
function untyped(value: unknown): () => void {
  return value as () => void
}
