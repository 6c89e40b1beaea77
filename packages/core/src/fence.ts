/**
 * How long a node may believe that it holds what it claimed: until shortly before the storage could give it away, counted
 * from the time at which the last answered renewal was *sent*. A sleeping machine may stop the monotonic clock, and a step
 * the wall clock, so whichever went further counts.
 */
import type { Clock, Timer } from './clock.js'

/** Share of the session's time to live. */
const SHARE = 0.88

/** When a call was sent, on both clocks, in ms. */
export interface SentAt {
  readonly monotonic: number
  readonly wall: number
}

export class Fence {
  readonly #clock: Clock
  readonly #limit: number
  readonly #raised: (silence: number) => void
  #sent: SentAt
  #isUp = false
  #timer: Timer | undefined

  /**
   * @param ttl of the session, ms
   * @param raised called when it goes up, with the ms of silence
   */
  constructor(ttl: number, clock: Clock, raised: (silence: number) => void) {
    this.#clock = clock
    this.#limit = ttl * SHARE
    this.#raised = raised
    this.#sent = this.now()
  }

  now(): SentAt {
    return { monotonic: this.#clock.monotonic(), wall: this.#clock.now() }
  }

  /** Whether it is up already; unlike {@link check} it does not look at the clocks. */
  get isUp(): boolean {
    return this.#isUp
  }

  /** ms since the last answered renewal was sent. */
  get silence(): number {
    return this.#clock.monotonic() - this.#sent.monotonic
  }

  /** Whether it is up now. @param monotonic ms, if it is known */
  check(monotonic: number = this.#clock.monotonic()): boolean {
    if (this.#isUp) return true
    const { monotonic: sent, wall } = this.#sent
    if (monotonic - sent < this.#limit && this.#clock.now() - wall < this.#limit) return false
    this.#isUp = true
    this.#raised(this.silence)
    return true
  }

  /** A renewal that was sent then has been answered. It stays up until {@link lower}. */
  renewed(sent: SentAt): void {
    this.#sent = sent
    this.#arm()
  }

  /** The storage has said, to what was sent then, what this node holds. */
  lower(sent: SentAt): void {
    this.#isUp = false
    this.renewed(sent)
  }

  end(): void {
    this.#timer?.cancel()
  }

  #arm(): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.after(this.#limit - this.silence, () => {
      if (!this.check()) this.#arm()
    })
  }
}
