/**
 * Who wants to know what happens, within this process.
 *
 * Listeners are isolated: whatever one does, the emitter goes on and the others are called. A listener that
 * throws is reported; one whose promise rejects is called twice more, and reported if that does not help. Nothing
 * is kept for those who do not listen yet, and an iteration that is read too slowly drops its oldest events and
 * says how many, so that no reader can fill the memory.
 *
 * Around mitt (https://github.com/developit/mitt), which calls listeners at once and in the order of their coming.
 */
import mitt, { type Emitter } from 'mitt'
import type { Clock } from './clock.js'
import { optionError } from './errors.js'
import { isThenable } from './thenable.js'

export interface EventBusOptions {
  clock: Clock
  /** Gets what a listener failed with in the end. What it throws itself is dropped. */
  onError: (error: unknown, type: string) => void
}

export interface EventsOptions<Type> {
  /** Ends the iteration at once when it aborts. */
  signal?: AbortSignal | undefined
  /** Which events. Default: all. */
  types?: readonly Type[] | undefined
  /** How many wait for the reader before the oldest is dropped. Default: 1000. */
  capacity?: number | undefined
}

/** The names of the events. */
export type EventName<Events> = keyof Events & string

/** An event of an iteration. */
export type StreamedEvent<Events> = {
  [Type in EventName<Events>]: {
    readonly type: Type
    readonly event: Events[Type]
    /** How many were dropped directly before this one, because the reader was too slow. */
    readonly dropped: number
  }
}[EventName<Events>]

type Listener = (...args: unknown[]) => unknown

/** What mitt calls, for one listener. A wildcard gets the type first. */
interface Handler {
  (first: unknown, second?: unknown): void
  listener: Listener
  wildcard: boolean
  removed: boolean
}

// mitt's types are those of a CommonJS module, where the function is the property `default`.
const createEmitter = mitt as unknown as typeof mitt.default

/** Pauses before a listener whose promise rejected is called again, ms. */
const PAUSES = [100, 200]
const DEFAULT_CAPACITY = 1000

export class EventBus<Events extends object> {
  readonly #emitter: Emitter<Record<string, unknown>> = createEmitter<Record<string, unknown>>()
  readonly #clock: Clock
  readonly #onError: (error: unknown, type: string) => void
  readonly #streams = new Set<EventStream<StreamedEvent<Events>>>()
  /** For each pause before a repeated call: how to give it up. */
  readonly #repeats = new Set<() => void>()
  #closed = false

  constructor(options: EventBusOptions) {
    this.#clock = options.clock
    this.#onError = options.onError
  }

  /**
   * Calls `listener` for each event of the type; for `'*'`, for each event of any type with the type first.
   *
   * @returns the function that ends it
   */
  on<Type extends EventName<Events>>(type: Type, listener: (event: Events[Type]) => unknown): () => void
  on(type: '*', listener: (type: EventName<Events>, event: Events[EventName<Events>]) => unknown): () => void
  on(type: string, listener: (...args: never[]) => unknown): () => void {
    return this.#add(type, listener as Listener, false)
  }

  /** The same, for the next event only. */
  once<Type extends EventName<Events>>(type: Type, listener: (event: Events[Type]) => unknown): () => void
  once(
    type: '*',
    listener: (type: EventName<Events>, event: Events[EventName<Events>]) => unknown,
  ): () => void
  once(type: string, listener: (...args: never[]) => unknown): () => void {
    return this.#add(type, listener as Listener, true)
  }

  /** Ends what `on` or `once` began; harmless when it has ended. */
  off<Type extends EventName<Events>>(type: Type, listener: (event: Events[Type]) => unknown): void
  off(type: '*', listener: (type: EventName<Events>, event: Events[EventName<Events>]) => unknown): void
  off(type: string, listener: (...args: never[]) => unknown): void {
    const handlers = this.#emitter.all.get(type) as Handler[] | undefined
    const handler = handlers?.find((each) => each.listener === listener)
    if (handler !== undefined) this.#remove(type, handler)
  }

  /** Whether an event of the type would reach anybody. O(1), so ask before you make the event. */
  hears(type: EventName<Events>): boolean {
    const { all } = this.#emitter
    if (all.size === 0) return false
    return (all.get(type)?.length ?? 0) > 0 || (all.get('*')?.length ?? 0) > 0
  }

  emit<Type extends EventName<Events>>(type: Type, event: Events[Type]): void {
    this.#emitter.emit(type, event)
  }

  /** The events from this call on, one after another, until the signal aborts, the reader leaves or the bus closes. */
  events(
    options: EventsOptions<EventName<Events>> = {},
  ): AsyncIterableIterator<StreamedEvent<Events>, undefined, undefined> {
    const { types } = options
    const stop: (() => void)[] = []
    const stream = new EventStream<StreamedEvent<Events>>(options, () => {
      for (const each of stop) each()
      this.#streams.delete(stream)
    })
    if (this.#closed) stream.end(true)
    if (stream.hasEnded) return stream
    this.#streams.add(stream)
    const push = <Type extends EventName<Events>>(type: Type, event: Events[Type]): void =>
      stream.push({ type, event, dropped: 0 })
    if (types === undefined) stop.push(this.on('*', push))
    else for (const type of new Set(types)) stop.push(this.on(type, (event) => push(type, event)))
    return stream
  }

  /**
   * Removes every listener, and gives up repeated calls. Iterations end when their readers have read what waits for
   * them. Safe to call twice.
   */
  close(): void {
    this.#closed = true
    for (const stream of this.#streams) stream.end(false)
    for (const giveUp of [...this.#repeats]) giveUp()
    for (const handlers of this.#emitter.all.values()) {
      for (const handler of handlers as Handler[]) handler.removed = true
    }
    this.#emitter.all.clear()
  }

  #add(type: string, listener: Listener, once: boolean): () => void {
    // Nothing will be emitted any more.
    if (this.#closed) return () => {}
    // A listener before this one may have emitted again, so that it is called for the inner event and then here.
    let spent = false
    const handle = (first: unknown, second?: unknown): void => {
      // mitt calls the list as it was when the event came; who left since then hears nothing more.
      if (handler.removed || spent) return
      if (once) {
        spent = true
        this.#emitter.off(type, handler)
      }
      this.#call(handler.wildcard ? (first as string) : type, handler, first, second, 0)
    }
    const handler: Handler = Object.assign(handle, { listener, wildcard: type === '*', removed: false })
    this.#emitter.on(type, handler)
    return () => this.#remove(type, handler)
  }

  #remove(type: string, handler: Handler): void {
    handler.removed = true
    this.#emitter.off(type, handler)
  }

  #call(type: string, handler: Handler, first: unknown, second: unknown, repeats: number): void {
    try {
      const { listener } = handler
      const result = handler.wildcard ? listener(first, second) : listener(first)
      if (!isThenable(result)) return
      result.then(undefined, (error: unknown) => this.#repeat(type, handler, first, second, repeats, error))
    } catch (error) {
      // It failed at once, so it would again; only what waited for something may have better luck later.
      if (repeats === 0) this.#report(error, type)
      else this.#repeat(type, handler, first, second, repeats, error)
    }
  }

  #repeat(
    type: string,
    handler: Handler,
    first: unknown,
    second: unknown,
    repeats: number,
    error: unknown,
  ): void {
    const pause = PAUSES[repeats]
    if (pause === undefined || handler.removed || this.#closed) {
      this.#report(error, type)
      return
    }
    const giveUp = (): void => {
      timer.cancel()
      this.#repeats.delete(giveUp)
      this.#report(error, type)
    }
    const timer = this.#clock.after(pause, () => {
      if (handler.removed) {
        giveUp()
        return
      }
      this.#repeats.delete(giveUp)
      this.#call(type, handler, first, second, repeats + 1)
    })
    this.#repeats.add(giveUp)
  }

  #report(error: unknown, type: string): void {
    try {
      // Typed as void, and yet somebody may have passed an async function.
      const report: (error: unknown, type: string) => unknown = this.#onError
      const result = report(error, type)
      if (isThenable(result)) result.then(undefined, () => {})
    } catch {
      // Nobody is left to tell.
    }
  }
}

/** One iteration: a bounded buffer between those who emit and one reader. */
export class EventStream<Item extends { readonly dropped: number }> implements AsyncIterableIterator<
  Item,
  undefined,
  undefined
> {
  readonly #capacity: number
  readonly #signal: AbortSignal | undefined
  readonly #onEnd: () => void
  readonly #buffer: Item[] = []
  readonly #readers: ((result: IteratorResult<Item, undefined>) => void)[] = []
  /** Before the oldest that waits. */
  #dropped = 0
  /** After the newest that waits. */
  #lost = 0
  #ended = false

  /** @param onEnd called once, unless the signal has aborted already */
  constructor({ signal, capacity = DEFAULT_CAPACITY }: EventsOptions<unknown>, onEnd: () => void) {
    if (!(Number.isInteger(capacity) && capacity > 0)) {
      throw optionError('capacity', 'a positive integer', capacity)
    }
    this.#capacity = capacity
    this.#signal = signal
    this.#onEnd = onEnd
    if (signal?.aborted === true) this.#ended = true
    else signal?.addEventListener('abort', this.#abort)
  }

  get hasEnded(): boolean {
    return this.#ended
  }

  /** @param item for this stream alone: how many were dropped before it is written into it */
  push(item: Item): void {
    tellDropped(item, this.#lost)
    this.#lost = 0
    const reader = this.#readers.shift()
    if (reader !== undefined) {
      reader({ done: false, value: item })
      return
    }
    if (this.#buffer.length === this.#capacity) {
      const oldest = this.#buffer.shift() as Item
      this.#dropped += oldest.dropped + 1
    }
    this.#buffer.push(item)
  }

  /** So many never came here; the next one that does says it. */
  lose(count: number): void {
    this.#lost += count
  }

  end(atOnce: boolean): void {
    if (atOnce) this.#buffer.length = 0
    if (this.#ended) return
    this.#ended = true
    this.#signal?.removeEventListener('abort', this.#abort)
    this.#onEnd()
    for (const reader of this.#readers.splice(0)) reader({ done: true, value: undefined })
  }

  next(): Promise<IteratorResult<Item, undefined>> {
    const item = this.#buffer.shift()
    if (item !== undefined) {
      // What was dropped stood before the oldest that is left.
      tellDropped(item, this.#dropped)
      this.#dropped = 0
      return Promise.resolve({ done: false, value: item })
    }
    if (this.#ended) return Promise.resolve({ done: true, value: undefined })
    return new Promise((resolve) => this.#readers.push(resolve))
  }

  return(): Promise<IteratorResult<Item, undefined>> {
    this.end(true)
    return Promise.resolve({ done: true, value: undefined })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  readonly #abort = (): void => this.end(true)
}

function tellDropped(item: { dropped: number }, more: number): void {
  item.dropped += more
}
