/**
 * One attempt of one task in this process: what its handler sees as `ctx`, and what the pool knows of it.
 *
 * Hundreds of thousands of them live for a microsecond each, so everything rare (the abort controller, the saved
 * state, the report under way) is made when it is first asked for.
 */
import { encodePayload, type Codec } from './codec.js'
import type { Claimed, Encoded, Parent, QueueRef } from './storage.js'
import { AbortReason, type AbortKind, type TaskContext } from './task-context.js'
import type { Timer } from './clock.js'

/** What an attempt needs from the pool that runs it. */
export interface ExecutionHost {
  readonly ref: QueueRef
  readonly codec: Codec
  readonly maxPayload: number
  /** Stores progress and lines of the log soon, at most ten times a second. */
  report(execution: Execution, hasProgressed: boolean): void
  /** Stores the checkpoint now. */
  checkpoint(execution: Execution, state: Encoded): Promise<void>
  /** Wall time in ms. */
  now(): number
}

/** Lines of the log that are worth keeping of an attempt: a storage keeps no more of a task. */
export const MOST_LINES = 100
const LINE_LIMIT = 2000
const NO_PARENTS: readonly Parent[] = []

export class Execution implements TaskContext {
  readonly claimed: Claimed
  /** The session under which it was claimed; what is written of it names this one for ever. */
  readonly session: string
  readonly #host: ExecutionHost
  #controller: AbortController | undefined
  #aborted: AbortKind | undefined
  /** Monotonic ms of the handler's call; negative before it. */
  startedAt: number
  /** Its place among the attempts of this process; theirs to keep. */
  slot = -1
  /** Whether the storage knows that it has started. */
  marked = false
  /** Whether its end was decided; what its handler does afterwards counts no more. */
  ended = false
  /** The timer of its timeout. */
  timer: Timer | undefined
  /** The newest progress not stored yet. */
  progressed: Encoded | undefined
  /** Lines of the log not stored yet. */
  lines: string[] | undefined

  constructor(host: ExecutionHost, claimed: Claimed, session: string, now: number) {
    this.#host = host
    this.startedAt = now
    this.claimed = claimed
    this.session = session
  }

  get id(): string {
    return this.claimed.id
  }

  get name(): string {
    return this.claimed.kind
  }

  get attempt(): number {
    return this.claimed.attempts + 1
  }

  get token(): number {
    return this.claimed.token
  }

  get queue(): string {
    return this.#host.ref.queue
  }

  get tenant(): string {
    return this.#host.ref.tenant
  }

  get parents(): readonly Parent[] {
    return this.claimed.parents ?? NO_PARENTS
  }

  get timedOut(): boolean {
    return this.claimed.timedOut ?? false
  }

  get state(): unknown {
    const { checkpoint } = this.claimed
    return checkpoint === undefined ? undefined : this.#host.codec.decode(checkpoint)
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#aborted !== undefined) this.#controller.abort(new AbortReason(this.#aborted))
    }
    return this.#controller.signal
  }

  /** Why its signal aborted, if it did. */
  get aborted(): AbortKind | undefined {
    return this.#aborted
  }

  /** Aborts its signal; the first reason stands. */
  abort(kind: AbortKind): void {
    if (this.#aborted !== undefined) return
    this.#aborted = kind
    this.#controller?.abort(new AbortReason(kind))
  }

  progress(value: unknown): void {
    const { codec, maxPayload } = this.#host
    this.progressed = encodePayload(codec, value, 'progress', maxPayload)
    this.#host.report(this, true)
  }

  async checkpoint(state: unknown): Promise<void> {
    const { codec, maxPayload } = this.#host
    await this.#host.checkpoint(this, encodePayload(codec, state, 'checkpoint', maxPayload))
  }

  log(message: string, fields?: Readonly<Record<string, unknown>>): void {
    const text = fields === undefined ? message : `${message} ${safeJson(fields)}`
    const line = `${new Date(this.#host.now()).toISOString()} ${text}`
    const lines = (this.lines ??= [])
    lines.push(line.length > LINE_LIMIT ? `${line.slice(0, LINE_LIMIT - 1)}…` : line)
    if (lines.length > MOST_LINES) lines.shift()
    this.#host.report(this, false)
  }
}

/** A log line must never fail the task that writes it. */
function safeJson(fields: object): string {
  try {
    return JSON.stringify(fields)
  } catch {
    return '{"unserializable":true}'
  }
}
