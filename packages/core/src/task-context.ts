/** What a handler is given beside its data. */
import type { Parent } from './storage.js'

/** Why `ctx.signal` aborted; the reason of the signal is an {@link AbortReason} with this as its `kind`. */
export type AbortKind = 'cancelled' | 'revoked' | 'timeout' | 'lease-lost' | 'shutdown'

export interface TaskContext {
  readonly id: string
  /** The name of the definition; empty for the pool's executor. */
  readonly name: string
  /** 1 for the first. */
  readonly attempt: number
  /** Grows with each claim of the task: a fencing number for systems that can refuse an older one. */
  readonly token: number
  readonly queue: string
  readonly tenant: string
  /** Aborts when the attempt must end; what ends later is not accepted. `signal.reason` is an {@link AbortReason}. */
  readonly signal: AbortSignal
  /** What the last attempt saved with `checkpoint`, `undefined` at first. */
  readonly state: unknown
  /** Its parents and how they ended, when it was submitted with `after`. */
  readonly parents: readonly Parent[]
  /** Whether it runs because a suspension timed out. */
  readonly timedOut: boolean
  /** Tells how far it is; the newest value is stored within about 100 ms. Any value that the codec takes. */
  progress(value: unknown): void
  /**
   * Saves what the next attempt, on whichever node, finds in `state`. Resolves when it is stored; rejects
   * `LEASE_LOST` when this attempt no longer holds the task.
   */
  checkpoint(state: unknown): Promise<void>
  /** Adds a line to the task's log; the newest 100 are kept. Lines over 2 000 characters are cut. */
  log(message: string, fields?: Readonly<Record<string, unknown>>): void
}

/** The reason of an aborted `ctx.signal`. */
export class AbortReason extends Error {
  override readonly name = 'AbortError'
  readonly kind: AbortKind

  constructor(kind: AbortKind) {
    super(MESSAGES[kind])
    this.kind = kind
  }
}

const MESSAGES: Record<AbortKind, string> = {
  cancelled: 'the task was cancelled',
  revoked: 'the task was taken away from this node',
  timeout: 'the attempt took longer than its timeout',
  'lease-lost': 'this node can no longer prove that it holds the task',
  shutdown: 'the pool is closing',
}
