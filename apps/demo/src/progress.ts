/**
 * How far it is: one line that is drawn again and again on a terminal, and a plain line now and then anywhere else.
 */
import { formatCount, formatSpan } from './format.js'

/** The part of a stream that is needed; `process.stderr` has it. */
interface Screen {
  readonly isTTY?: boolean
  readonly columns?: number
  write(text: string): unknown
}

export interface ProgressOptions {
  readonly screen: Screen
  readonly total: number
  /** Done before it began: counts as progress, not as speed. */
  readonly done: number
  /** Shown while nothing moves. */
  readonly waitingFor?: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** Monotonic ms. */
  readonly now: () => number
}

const REDRAW = 100
const PLAIN = 1000
/** The speed is that of the last moments, in ms. */
const MEMORY = 5000
const LONGEST_BAR = 40

export class Progress {
  readonly #options: ProgressOptions
  readonly #live: boolean
  readonly #colour: boolean
  readonly #since: number
  #widest = 0
  #done: number
  #moved: number
  /** What was done at some moments of the last seconds, oldest first. */
  #samples: { at: number; done: number }[]
  #timer: NodeJS.Timeout | undefined

  constructor(options: ProgressOptions) {
    const { screen, env, done, now } = options
    this.#options = options
    this.#live = screen.isTTY === true && env['TERM'] !== 'dumb'
    this.#colour = this.#live && (env['NO_COLOR'] ?? '') === ''
    this.#done = done
    this.#since = this.#moved = now()
    this.#samples = [{ at: this.#since, done }]
  }

  start(): void {
    if (this.#live) this.show()
    this.#timer ??= setInterval(() => this.show(), this.#live ? REDRAW : PLAIN)
  }

  /** One more is done. */
  step(): void {
    this.#done++
    this.#moved = this.#options.now()
  }

  /** Leaves nothing behind on a terminal, and a last line elsewhere. */
  stop(): void {
    if (this.#timer === undefined) return
    clearInterval(this.#timer)
    this.#timer = undefined
    if (this.#live) this.#options.screen.write('\r\x1b[K')
    else this.show()
  }

  /** Draws the line, or writes one. */
  show(): void {
    const { screen } = this.#options
    if (!this.#live) {
      screen.write(`${this.#words().join(', ')}\n`)
      return
    }
    // Some terminals say 0 because they do not know. A line as wide as the terminal would wrap on others.
    const room = (screen.columns || 80) - 1
    screen.write(`\r${this.#line(room)}\x1b[K`)
  }

  #line(room: number): string {
    const words = this.#words()
    // What does not fit is left out from the end, the bar first.
    while (words.length > 1 && words.join('  ').length > room) words.pop()
    const text = words.join('  ').slice(0, room)
    // The bar gives way to longer words and does not take the room back, or it would tremble.
    this.#widest = Math.max(this.#widest, text.length)
    const width = Math.min(LONGEST_BAR, room - this.#widest - 2)
    if (width < 5) return text
    const full = this.#options.total === 0 ? width : Math.floor((width * this.#done) / this.#options.total)
    return `${this.#paint('█'.repeat(full), 32)}${this.#paint('░'.repeat(width - full), 2)}  ${text}`
  }

  /** From the most to the least important. */
  #words(): string[] {
    const { total, now, waitingFor } = this.#options
    const at = now()
    const count = `${formatCount(this.#done)} of ${formatCount(total)} files`
    const share = `${Math.floor((100 * this.#done) / Math.max(1, total))} %`
    if (this.#done === total) return [count, share, formatSpan((at - this.#since) / 1000)]
    if (waitingFor !== undefined && at - this.#moved > PLAIN)
      return [count, share, `waiting for ${waitingFor}`]
    const rate = this.#rate(at)
    const eta = rate > 0 ? formatSpan((total - this.#done) / rate) : '?'
    return [count, share, `${formatCount(rate)} files/s`, `ETA ${eta}`]
  }

  #rate(at: number): number {
    this.#samples.push({ at, done: this.#done })
    while (this.#samples.length > 2 && at - (this.#samples[1]?.at ?? at) > MEMORY) this.#samples.shift()
    const first = this.#samples[0] ?? { at, done: this.#done }
    return at === first.at ? 0 : ((this.#done - first.done) * 1000) / (at - first.at)
  }

  #paint(text: string, code: number): string {
    return this.#colour && text !== '' ? `\x1b[${code}m${text}\x1b[0m` : text
  }
}
