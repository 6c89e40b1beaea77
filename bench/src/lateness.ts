/** How late what ran was against its slot, by the clock of the machine. */
import { Deliveries, pause, percentile } from './workload.js'

/** ms after which what has not run is taken for lost. */
const LONGEST = 60_000
/** ms in which what comes twice is still heard. */
const AFTERMATH = 300

export interface LatenessOptions {
  /** How many runs are measured. */
  readonly count: number
  /** How many come before those, numbered first, and warm the program up: code is compiled, scripts are loaded. */
  readonly warmUp: number
  /**
   * ms by which a run may be early. For peers that are told a delay and not an instant, or that rest on Node's timers, which
   * may be a ms early. Default: 0.
   */
  readonly early?: number
}

/** Notes each run; {@link Lateness.p99} throws unless each slot ran exactly once and none before its time. */
export class Lateness {
  /** Resolves when all of the warm-up have run. */
  readonly warm: Promise<void>
  readonly #options: LatenessOptions
  readonly #warmUp: Deliveries
  readonly #measured: Deliveries
  readonly #ms: number[] = []
  #earliest = Infinity
  #unknown: number | undefined

  constructor(options: LatenessOptions) {
    this.#options = options
    this.#warmUp = new Deliveries(options.warmUp)
    this.#measured = new Deliveries(options.count)
    this.warm = this.#warmUp.complete
  }

  /**
   * @param i the number of the slot, the warm-up's first
   * @param slot its instant; `undefined` for what was to run at once
   */
  ran(i: number, slot: number | undefined): void {
    const late = slot === undefined ? Infinity : Date.now() - slot
    const { warmUp, count } = this.#options
    if (!(i >= 0 && i < warmUp + count && Number.isInteger(i))) this.#unknown ??= i
    this.#earliest = Math.min(this.#earliest, late)
    if (i < warmUp) {
      this.#warmUp.count(i)
      return
    }
    this.#ms.push(late)
    this.#measured.count(i - warmUp)
  }

  /**
   * Waits for all of them. @returns ms, whole ones, as the clock tells them
   *
   * @param until when the last one is due
   */
  async p99(until: number): Promise<number> {
    let isLate: (reason: Error) => void = () => {}
    const lost = new Promise<never>((_, reject) => (isLate = reject))
    const tell = (): void =>
      isLate(new Error(`${this.#ms.length} of ${this.#options.count} ran within a minute`))
    const timer = setTimeout(tell, Math.max(0, until - Date.now()) + LONGEST)
    await Promise.race([this.#measured.complete, lost]).finally(() => clearTimeout(timer))
    await pause(AFTERMATH)
    this.#measured.check()
    const { early = 0 } = this.#options
    if (this.#earliest < -early) throw new Error(`one ran ${-this.#earliest} ms before its time`)
    if (this.#unknown !== undefined) throw new Error(`${this.#unknown} is no slot`)
    return percentile(this.#ms, 0.99)
  }
}
