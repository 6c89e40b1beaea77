/**
 * Group commit: many calls of one item each become few calls of many items.
 *
 * Calls made while a batch is in flight ride in the next one. Every batch starts at the end of a turn of the loop,
 * so all that is added within the turn shares it; there is no timer to wait for and no delay to tune. Items go out
 * in the order of their adding, one batch after the other unless `flights` says otherwise, and each promise settles
 * at its item's deadline at the latest, whatever the storage does.
 *
 * With two flights a storage works while the answers of the batch before are taken in. What waits is then divided among
 * those that may start, or all callers who wait for one batch would ride together in the next one for ever.
 *
 * Invariant: all items have the same timeout, so their deadlines stand in the order of their adding: first those
 * in flight, then those waiting. One timer for the first of them is enough.
 */
import { setImmediate, type Clock, type Timer } from './clock.js'
import { formatDuration } from './duration.js'
import { NeoTaskError, StorageUnavailableError } from './errors.js'

export interface BatcherOptions<In, Out> {
  /**
   * Carries out a batch and answers with one result for each item, in order. Rejected with a retryable
   * NeoTaskError it is called again with the same array, until the items' deadlines; any other rejection
   * reaches every item.
   */
  run: (items: In[]) => Promise<readonly Out[]>
  /** The largest batch, as `count` counts. A single item always fits. */
  maxItems: number
  /** How many an item counts for. Default: 1. */
  count?: ((item: In) => number) | undefined
  /** What an item weighs, in the unit of `maxSize`. Default: 0. */
  size?: ((item: In) => number) | undefined
  /** The heaviest batch. A single item always fits. Default: unlimited. */
  maxSize?: number | undefined
  /** How many batches may be in flight at a time. Default: 1. */
  flights?: number | undefined
  /** How much may wait, as `count` counts. More is refused with `BACKPRESSURE`; an empty buffer takes any item. */
  maxWaiting: number
  /** ms after which an item that has no answer is rejected. */
  timeout: number
  clock: Clock
}

interface Entry<In, Out> {
  readonly item: In
  readonly count: number
  readonly size: number
  /** Monotonic. */
  readonly deadline: number
  readonly resolve: (result: Out, item: In) => void
  readonly reject: (error: unknown, item: In) => void
}

interface Batch<In, Out> {
  readonly entries: readonly Entry<In, Out>[]
  readonly items: In[]
  /** How many of the entries, from the first, are past their deadlines. */
  expired: number
  /** The last rejection that was retryable. */
  error: unknown
  /** The pause before the next try. */
  pause: Timer | undefined
}

/** Pauses between tries, ms: the first from 5 to 10, doubled up to one from 250 to 500. */
const FIRST_PAUSE = 10
const LONGEST_PAUSE = 500
/** Fewer, as `count` counts, are not worth a call of their own. */
const MIN_SHARE = 20
/** Below this many places already taken from the buffer, moving the rest is not worth while. */
const MIN_TAKEN = 1024

// An executor of its own for each promise would be a closure and a context more for each item.
const captured = { resolve: (_result: unknown): void => {}, reject: (_error: unknown): void => {} }
function capture(resolve: (result: never) => void, reject: (error: unknown) => void): void {
  captured.resolve = resolve as (result: unknown) => void
  captured.reject = reject
}

export class Batcher<In, Out> {
  readonly #options: BatcherOptions<In, Out>
  #buffer: (Entry<In, Out> | undefined)[] = []
  /** Where the buffer begins; the places before it were taken. */
  #head = 0
  #waiting = 0
  /** In the order of their sending. */
  readonly #flights: Batch<In, Out>[] = []
  /** Whether a batch starts at the end of this turn. */
  #starting = false
  /** Fires at or before the first deadline; undefined while idle. */
  #timer: Timer | undefined
  #idleWaiters: (() => void)[] = []

  constructor(options: BatcherOptions<In, Out>) {
    this.#options = options
  }

  /** How much is buffered and not in flight, as `count` counts. */
  get waiting(): number {
    return this.#waiting
  }

  /**
   * @returns the item's result
   * @throws NeoTaskError `BACKPRESSURE` (retryable) when too much waits; `STORAGE_UNAVAILABLE` at the deadline,
   *   `uncertain` if the item was sent; or what `run` rejected with
   */
  add(item: In): Promise<Out> {
    const promise = new Promise<Out>(capture)
    this.push(item, captured.resolve, captured.reject)
    return promise
  }

  /**
   * The same without a promise, for callers whose items know whom to tell: exactly one of the two is called, later
   * than this call returns unless too much waits.
   */
  push(item: In, resolve: (result: Out, item: In) => void, reject: (error: unknown, item: In) => void): void {
    const { count: countOf, size: sizeOf, maxWaiting, timeout, clock } = this.#options
    const count = countOf === undefined ? 1 : countOf(item)
    if (this.#waiting + count > maxWaiting && this.#waiting > 0) {
      const message = `expected at most ${maxWaiting} to wait for the storage, got ${this.#waiting + count}`
      reject(new NeoTaskError('BACKPRESSURE', message, { retryable: true }), item)
      return
    }
    const size = sizeOf === undefined ? 0 : sizeOf(item)
    const deadline = clock.monotonic() + timeout
    this.#buffer.push({ item, count, size, deadline, resolve, reject })
    this.#waiting += count
    // It holds the process: somebody waits for the answer.
    this.#timer ??= clock.after(timeout, this.#expire, { hold: true })
    this.#startSoon()
  }

  /** Resolves when everything added before has settled, and whatever was added meanwhile too. */
  idle(): Promise<void> {
    if (this.#isIdle()) return Promise.resolve()
    return new Promise((resolve) => this.#idleWaiters.push(resolve))
  }

  #isIdle(): boolean {
    return this.#flights.length === 0 && this.#head === this.#buffer.length
  }

  /** At the end of the turn, so that callers whose promises just resolved may add to the next batch. */
  #startSoon(): void {
    if (this.#starting || this.#free === 0) return
    this.#starting = true
    setImmediate(this.#start)
  }

  readonly #start = (): void => {
    this.#starting = false
    // The timer may be late, and what has expired must not be sent.
    this.#expireWaiting(this.#options.clock.monotonic())
    for (let free = this.#free; free > 0 && this.#head < this.#buffer.length; free--) {
      const entries = this.#take(Math.max(MIN_SHARE, Math.ceil(this.#waiting / free)))
      const items: In[] = []
      for (const entry of entries) items.push(entry.item)
      const batch = { entries, items, expired: 0, error: undefined, pause: undefined }
      this.#flights.push(batch)
      void this.#carryOut(batch)
    }
    if (this.#flights.length === 0) this.#settled()
  }

  /** How many batches may start. */
  get #free(): number {
    return (this.#options.flights ?? 1) - this.#flights.length
  }

  /** @param share how much one batch should take of what waits, as `count` counts */
  #take(share: number): Entry<In, Out>[] {
    const { maxSize = Infinity } = this.#options
    const maxItems = Math.min(share, this.#options.maxItems)
    const entries: Entry<In, Out>[] = []
    let count = 0
    let size = 0
    while (this.#head < this.#buffer.length) {
      const entry = this.#buffer[this.#head] as Entry<In, Out>
      count += entry.count
      size += entry.size
      if (entries.length > 0 && (count > maxItems || size > maxSize)) break
      entries.push(entry)
      this.#dropFirst(entry)
    }
    if (this.#head >= MIN_TAKEN && this.#head * 2 >= this.#buffer.length) {
      this.#buffer = this.#buffer.slice(this.#head)
      this.#head = 0
    }
    return entries
  }

  #dropFirst(entry: Entry<In, Out>): void {
    this.#buffer[this.#head++] = undefined
    this.#waiting -= entry.count
  }

  /** Tries until it has an answer, or until the batch was given up because all its deadlines passed. */
  async #carryOut(batch: Batch<In, Out>): Promise<void> {
    for (
      let longest = FIRST_PAUSE;
      this.#flights.includes(batch);
      longest = Math.min(longest * 2, LONGEST_PAUSE)
    ) {
      let results: readonly Out[]
      try {
        results = await this.#options.run(batch.items)
      } catch (error) {
        if (!this.#flights.includes(batch)) return
        if (!(error instanceof NeoTaskError && error.retryable)) {
          this.#fail(batch, error)
          return
        }
        batch.error = error
        await new Promise<void>((resolve) => {
          const pause = longest * (0.5 + Math.random() / 2)
          batch.pause = this.#options.clock.after(pause, resolve, { hold: true })
        })
        continue
      }
      if (this.#flights.includes(batch)) this.#finish(batch, results)
      return
    }
  }

  #finish(batch: Batch<In, Out>, results: readonly Out[]): void {
    const { entries } = batch
    if (results.length !== entries.length) {
      const message = `the storage must give ${entries.length} answers, it gave ${results.length}`
      this.#fail(batch, new StorageUnavailableError('STORAGE_UNAVAILABLE', message, { uncertain: true }))
      return
    }
    this.#end(batch)
    for (let i = batch.expired; i < entries.length; i++) {
      const { resolve, item } = entries[i] as Entry<In, Out>
      resolve(results[i] as Out, item)
    }
    this.#settled()
  }

  #end(batch: Batch<In, Out>): void {
    this.#flights.splice(this.#flights.indexOf(batch), 1)
  }

  #fail(batch: Batch<In, Out>, error: unknown): void {
    this.#end(batch)
    for (let i = batch.expired; i < batch.entries.length; i++) {
      const { reject, item } = batch.entries[i] as Entry<In, Out>
      reject(error, item)
    }
    this.#settled()
  }

  /** A batch came to its end, or what waited for it did. */
  #settled(): void {
    if (!this.#isIdle()) {
      this.#startSoon()
      return
    }
    this.#buffer.length = 0
    this.#head = 0
    this.#timer?.cancel()
    this.#timer = undefined
    const waiters = this.#idleWaiters
    if (waiters.length === 0) return
    this.#idleWaiters = []
    for (const resolve of waiters) resolve()
  }

  readonly #expire = (): void => {
    this.#timer = undefined
    const now = this.#options.clock.monotonic()
    for (const batch of [...this.#flights]) this.#expireSent(batch, now)
    this.#expireWaiting(now)
    const [first] = this.#flights
    const next = first?.entries[first.expired] ?? this.#buffer[this.#head]
    if (next !== undefined) {
      this.#timer = this.#options.clock.after(next.deadline - now, this.#expire, { hold: true })
    }
    if (this.#free > 0) this.#settled()
  }

  #expireSent(batch: Batch<In, Out>, now: number): void {
    const { entries } = batch
    let error: StorageUnavailableError | undefined
    for (; batch.expired < entries.length; batch.expired++) {
      const entry = entries[batch.expired] as Entry<In, Out>
      if (entry.deadline > now) return
      error ??= this.#noAnswer(true, batch.error)
      entry.reject(error, entry.item)
    }
    // Nobody waits for it any more. Whatever it still answers is too late, and the next may go.
    batch.pause?.cancel()
    this.#end(batch)
  }

  #expireWaiting(now: number): void {
    let error: StorageUnavailableError | undefined
    while (this.#head < this.#buffer.length) {
      const entry = this.#buffer[this.#head] as Entry<In, Out>
      if (entry.deadline > now) return
      this.#dropFirst(entry)
      error ??= this.#noAnswer(false, this.#flights[0]?.error)
      entry.reject(error, entry.item)
    }
  }

  #noAnswer(sent: boolean, cause: unknown): StorageUnavailableError {
    const within = formatDuration(this.#options.timeout)
    const unsent = sent ? '' : ', and the call was not sent'
    const message =
      cause instanceof Error
        ? `the storage failed for ${within}${unsent}: ${cause.message}`
        : `the storage gave no answer within ${within}${unsent}`
    return new StorageUnavailableError('STORAGE_UNAVAILABLE', message, {
      retryable: true,
      uncertain: sent,
      ...(cause === undefined ? {} : { cause }),
    })
  }
}
