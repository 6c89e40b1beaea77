/**
 * The events of all pools of a queue, in every process: what happens here is told to those who listen elsewhere, and
 * what happens there is told here.
 *
 * It goes through the notices of the storage, so it is best effort and at most once: what is said while a connection is
 * down is not heard. While nobody listens nothing is made and nothing is published. Whoever listens says which types on
 * the `listen` channel of the queue, again every {@link REPEAT} ms, and says when it is over; a pool that opens asks
 * once. Events are gathered into messages on the `events` channel. A pool never waits for any of it, but to close.
 */
import { randomBytes } from 'node:crypto'
import { setImmediate, type Clock, type Timer } from './clock.js'
import { encodedSize, type Codec } from './codec.js'
import { withDeadline } from './deadline.js'
import { EventStream, type EventBus, type EventsOptions } from './event-bus.js'
import { storeFailure, StoredError, type Failure } from './failure.js'
import type { PoolEvents } from './pool-events.js'
import { CHANGED, type NoticesFace, type QueueRef, type Storage } from './storage.js'

/**
 * What travels of an event: everything but `data` and `result`. Errors are those that `failure` made of them, and
 * `progress` is `undefined` when it takes more than 4 KiB.
 */
export type ClusterEventOf<Event> = {
  readonly [Key in Exclude<keyof Event, 'data' | 'result'>]: Key extends 'error' ? StoredError : Event[Key]
}

/** An event of `events({ scope: 'cluster' })`, of any type or of these. */
export type ClusterEvent<Type extends keyof PoolEvents = keyof PoolEvents> = {
  [Each in keyof PoolEvents]: {
    readonly type: Each
    readonly event: ClusterEventOf<PoolEvents[Each]>
    /** The name of the node on which it happened. */
    readonly node: string
    /** When it happened, in ms since 1970 by the clock of that node. */
    readonly at: number
    /**
     * How many were dropped directly before this one, because this reader was too slow, or the other node could not
     * send as fast as things happened there.
     */
    readonly dropped: number
  }
}[Type]

export interface ClusterEventsContext {
  readonly ref: QueueRef
  /** The name of this node. */
  readonly node: string
  readonly codec: Codec
  readonly clock: Clock
  readonly callTimeout: number
  readonly events: EventBus<PoolEvents>
  /** The storage once it is open; opens it. */
  readonly storage: () => Promise<Storage>
  /** Told once when this pool cannot hear others although somebody listens; it goes on trying. */
  readonly troubled: (error: unknown) => void
}

/** What is said on the `listen` channel. */
interface Interest {
  readonly v: number
  readonly from: string
  /** Types that are wanted; {@link ALL} is all of them. None: no longer. */
  readonly types: readonly string[]
  /** ms for which it holds. */
  readonly lasts: number
  /** Whether those who listen should say so. */
  readonly ask: boolean
}

/** What is said on the `events` channel. */
interface Message {
  readonly v: number
  readonly from: string
  readonly node: string
  /** How many of each type could not be sent before these. */
  readonly lost: Readonly<Record<string, number>>
  readonly events: readonly Packed[]
}

type Packed = readonly [type: string, at: number, fields: Readonly<Record<string, unknown>>]

/** An event that is to be sent. */
interface Waiting {
  readonly type: string
  readonly text: string
}

/** A value as the codec of its node made it; bytes as base64. */
interface PackedValue {
  readonly codec: string
  readonly text?: string
  readonly bytes?: string
}

/** The version of the messages; those of another are ignored. */
const VERSION = 1
const ALL = '*'
/** ms between two messages of one who listens, and before what failed is tried again. */
const REPEAT = 3000
/** ms after which one of whom nothing was heard listens no more. */
const LASTS = 10_000
/** ms for which events are gathered, and characters after which they are not any longer. */
const GATHER = 25
const MESSAGE = 32 * 1024
/** Characters that wait to be sent; beyond them the oldest are dropped. */
const MOST_WAITING = 1024 * 1024
/** Bytes of a progress that travels. */
const MOST_PROGRESS = 4096

export class ClusterEvents {
  readonly #context: ClusterEventsContext
  readonly #id = randomBytes(9).toString('base64url')
  readonly #channels: { readonly listen: string; readonly events: string }
  /** Who listens in this pool, and to which types. */
  readonly #streams = new Map<EventStream<ClusterEvent>, ReadonlySet<string>>()
  /** Who listens elsewhere. */
  readonly #interests = new Map<string, { readonly types: ReadonlySet<string>; readonly end: Timer }>()
  /** End the listening to events of this pool. */
  readonly #taps: (() => void)[] = []

  #notices: NoticesFace | undefined
  #leaveListen: (() => Promise<void>) | undefined
  #leaveEvents: (() => Promise<void>) | undefined
  #asked = false
  #announced = false
  #again = false
  #connecting: Promise<void> | undefined
  #failing = false
  #repeat: Timer | undefined

  /** Events to be sent, from {@link #first} on: thousands of times `shift` would move all the others each time. */
  #waiting: Waiting[] = []
  #first = 0
  #size = 0
  #lost = new Map<string, number>()
  #gather: Timer | undefined
  #rushed = false
  #sending: Promise<unknown> | undefined
  #closed = false

  constructor(context: ClusterEventsContext) {
    this.#context = context
    // So that no two queues share a channel, whatever is in their names.
    const queue = [context.ref.tenant, context.ref.queue].map(encodeURIComponent).join('/')
    this.#channels = { listen: `listen:${queue}`, events: `events:${queue}` }
  }

  /** The events from this call on; opens the storage without being waited for. */
  events(
    options: EventsOptions<keyof PoolEvents>,
  ): AsyncIterableIterator<ClusterEvent, undefined, undefined> {
    const stream = new EventStream<ClusterEvent>(options, () => {
      this.#streams.delete(stream)
      this.#tap()
      this.#connect()
    })
    if (this.#closed) stream.end(true)
    if (stream.hasEnded) return stream
    this.#streams.set(stream, new Set(options.types ?? [ALL]))
    this.#tap()
    this.#connect()
    return stream
  }

  /** The storage is open: from now on this pool knows who listens. */
  begin(): void {
    // After the first submit, which is sent at the end of this turn: a storage may work in this thread, as SQLite does.
    setImmediate(() => setImmediate(() => this.#connect()))
  }

  /** Sends what waits, tells others that nobody listens here any more, and hears them no more. Never rejects. */
  async close(): Promise<void> {
    this.#closed = true
    this.#repeat?.cancel()
    this.#gather?.cancel()
    const { callTimeout, clock } = this.#context
    await withDeadline(this.#leave(), callTimeout, clock, 'publish').catch(() => {})
    for (const { end } of this.#interests.values()) end.cancel()
    this.#interests.clear()
    this.#tap()
  }

  /** Iterations end when their readers have read what waits for them. */
  end(): void {
    this.#closed = true
    this.#repeat?.cancel()
    for (const stream of [...this.#streams.keys()]) stream.end(false)
  }

  // ------------------------------------------------------------------------------------------- who listens

  /** Listens to the events of this pool that anybody wants. */
  #tap(): void {
    for (const leave of this.#taps.splice(0)) leave()
    const { events } = this.#context
    const wanted = new Set<string>()
    for (const types of this.#streams.values()) for (const type of types) wanted.add(type)
    for (const { types } of this.#interests.values()) for (const type of types) wanted.add(type)
    if (wanted.has(ALL)) this.#taps.push(events.on(ALL, (type, event) => this.#happened(type, event)))
    else {
      for (const type of wanted as Set<keyof PoolEvents>)
        this.#taps.push(events.on(type, (event) => this.#happened(type, event)))
    }
    if (this.#interests.size > 0) return
    this.#waiting = []
    this.#first = this.#size = 0
    this.#lost.clear()
  }

  /** Lets this pool hear and say what it should by now. One pass at a time; what is asked for meanwhile is one more. */
  #connect(): void {
    this.#again = true
    if (!this.#closed) this.#connecting ??= this.#passes()
  }

  async #passes(): Promise<void> {
    this.#repeat?.cancel()
    try {
      while (this.#again) {
        this.#again = false
        await this.#pass()
      }
      this.#failing = false
    } catch (error) {
      if (!this.#failing && this.#streams.size > 0) this.#context.troubled(error)
      this.#failing = true
    }
    this.#connecting = undefined
    const listens = this.#streams.size > 0
    if (this.#closed || !(listens || this.#failing)) return
    // It holds the process while somebody listens, as a wait does.
    const options = { hold: listens, poll: true }
    this.#repeat = this.#context.clock.after(REPEAT, () => this.#connect(), options)
  }

  async #pass(): Promise<void> {
    this.#notices ??= (await this.#context.storage()).notices
    if (this.#closed) return
    this.#leaveListen ??= await this.#subscribe(this.#channels.listen, (said: Interest) =>
      this.#heardInterest(said),
    )
    // Before it says that it listens, so that it misses nothing of what is sent from then on.
    if (this.#streams.size > 0) {
      this.#leaveEvents ??= await this.#subscribe(this.#channels.events, (said: Message) =>
        this.#heardEvents(said),
      )
    }
    const types = [...new Set([...this.#streams.values()].flatMap((some) => [...some]))]
    if (types.length > 0 || this.#announced || !this.#asked) {
      const interest: Interest = { v: VERSION, from: this.#id, types, lasts: LASTS, ask: !this.#asked }
      await this.#publish(this.#channels.listen, JSON.stringify(interest))
      this.#announced = types.length > 0
      this.#asked = true
    }
    if (this.#streams.size > 0) return
    const leave = this.#leaveEvents
    this.#leaveEvents = undefined
    await leave?.()
  }

  #heardInterest({ from, types, lasts, ask }: Interest): void {
    if (ask && this.#streams.size > 0) this.#connect()
    const forget = (): void => {
      if (this.#interests.delete(from)) this.#tap()
    }
    this.#interests.get(from)?.end.cancel()
    if (types.length === 0) {
      forget()
      return
    }
    const end = this.#context.clock.after(lasts, forget, { poll: true })
    this.#interests.set(from, { types: new Set(types), end })
    this.#tap()
  }

  // -------------------------------------------------------------------------------------------------- events

  #happened(type: keyof PoolEvents, event: object): void {
    const { clock, codec, node } = this.#context
    const packed: Packed = [type, clock.now(), pack(event, codec)]
    for (const [stream, types] of this.#streams)
      if (wants(types, type)) stream.push(unpack(packed, node, codec))
    for (const { types } of this.#interests.values()) {
      if (!wants(types, type)) continue
      this.#send(type, JSON.stringify(packed))
      return
    }
  }

  #heardEvents({ node, events, lost }: Message): void {
    const { codec } = this.#context
    for (const [stream, types] of this.#streams) {
      for (const [type, count] of Object.entries(lost)) if (wants(types, type)) stream.lose(count)
      for (const packed of events) if (wants(types, packed[0])) stream.push(unpack(packed, node, codec))
    }
  }

  #send(type: string, text: string): void {
    if (text.length > MESSAGE) {
      this.#lose(type)
      return
    }
    this.#waiting.push({ type, text })
    this.#size += text.length
    while (this.#size > MOST_WAITING) this.#lose(this.#take().type)
    this.#sendSoon()
  }

  #sendSoon(): void {
    if (this.#closed || this.#size === 0 || this.#rushed) return
    if (this.#size < MESSAGE) {
      this.#gather ??= this.#context.clock.after(GATHER, this.#flush, { poll: true })
      return
    }
    // Never within the step that told the event: its caller may have a transaction open.
    this.#rushed = true
    setImmediate(this.#flush)
  }

  readonly #flush = (): void => {
    this.#gather?.cancel()
    this.#gather = undefined
    this.#rushed = false
    if (this.#closed || this.#size === 0) return
    this.#sending ??= this.#sendOne().then(() => {
      this.#sending = undefined
      this.#sendSoon()
    })
  }

  /** @returns whether it was sent; what was not counts as lost */
  async #sendOne(): Promise<boolean> {
    const lost = this.#lost
    this.#lost = new Map()
    const head = JSON.stringify({
      v: VERSION,
      from: this.#id,
      node: this.#context.node,
      lost: Object.fromEntries(lost),
    })
    const sent: Waiting[] = []
    for (let size = 0; this.#size > 0;) {
      size += (this.#waiting[this.#first] as Waiting).text.length
      if (size > MESSAGE) break
      sent.push(this.#take())
    }
    const events = sent.map(({ text }) => text).join(',')
    try {
      await this.#publish(this.#channels.events, `${head.slice(0, -1)},"events":[${events}]}`)
      return true
    } catch {
      for (const [type, count] of lost) this.#lose(type, count)
      for (const { type } of sent) this.#lose(type)
      return false
    }
  }

  #take(): Waiting {
    const first = this.#waiting[this.#first++] as Waiting
    this.#size -= first.text.length
    if (this.#first * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#first)
      this.#first = 0
    }
    return first
  }

  #lose(type: string, count = 1): void {
    this.#lost.set(type, (this.#lost.get(type) ?? 0) + count)
  }

  async #leave(): Promise<void> {
    await this.#connecting
    await this.#sending
    while (this.#size > 0 && (await this.#sendOne()));
    if (this.#announced) {
      const interest: Interest = { v: VERSION, from: this.#id, types: [], lasts: 0, ask: false }
      await this.#publish(this.#channels.listen, JSON.stringify(interest)).catch(() => {})
    }
    await Promise.all([this.#leaveListen?.(), this.#leaveEvents?.()])
  }

  // ------------------------------------------------------------------------------------------------ notices

  async #publish(channel: string, text: string): Promise<void> {
    const { callTimeout, clock } = this.#context
    await withDeadline((this.#notices as NoticesFace).publish(channel, text), callTimeout, clock, 'publish')
  }

  async #subscribe(channel: string, hear: (said: never) => void): Promise<() => Promise<void>> {
    const { callTimeout, clock } = this.#context
    const listener = (text: string): void => {
      if (text === CHANGED) return
      try {
        const said = JSON.parse(text) as { v?: unknown; from?: unknown } | null
        if (said?.v === VERSION && said.from !== this.#id && !this.#closed) hear(said as never)
      } catch {
        // What another version says.
      }
    }
    const subscribing = (this.#notices as NoticesFace).subscribe(channel, listener)
    try {
      return await withDeadline(subscribing, callTimeout, clock, 'subscribe')
    } catch (error) {
      // One that comes too late would be a second one beside the next.
      subscribing.then((leave) => leave()).catch(() => {})
      throw error
    }
  }
}

function wants(types: ReadonlySet<string>, type: string): boolean {
  return types.has(ALL) || types.has(type)
}

/** What travels of an event, as JSON can say it. Never throws. */
function pack(event: object, codec: Codec): Packed[2] {
  const fields: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(event) as [string, unknown][]) {
    if (key === 'error') fields[key] = storeFailure(value)
    else if (key === 'progress') fields[key] = packValue(value, codec)
    else if (key !== 'data' && key !== 'result') fields[key] = value
  }
  return fields
}

function unpack([type, at, fields]: Packed, node: string, codec: Codec): ClusterEvent {
  const event: Record<string, unknown> = { ...fields }
  if ('error' in fields) event['error'] = new StoredError(fields['error'] as Failure)
  if ('progress' in fields) event['progress'] = unpackValue(fields['progress'] as PackedValue, codec)
  return { type, event, node, at, dropped: 0 } as unknown as ClusterEvent
}

function packValue(value: unknown, codec: Codec): PackedValue | undefined {
  try {
    const encoded = codec.encode(value, 'progress')
    if (encodedSize(encoded) > MOST_PROGRESS) return undefined
    return typeof encoded === 'string'
      ? { codec: codec.id, text: encoded }
      : { codec: codec.id, bytes: Buffer.from(encoded).toString('base64') }
  } catch {
    return undefined
  }
}

function unpackValue(value: PackedValue | undefined, codec: Codec): unknown {
  if (value?.codec !== codec.id) return undefined
  try {
    return codec.decode(value.text ?? Buffer.from(value.bytes as string, 'base64'))
  } catch {
    // Of another version of the program, perhaps; what came with it is told all the same.
    return undefined
  }
}
