/**
 * Any number of timers on one timer of the clock.
 *
 * Adding and cancelling cost O(1). A timer never fires early and, unless the loop is busy, at most about 2 ms
 * late; equal ones fire in the order of their adding, and after a long sleep everything due fires in order.
 * The wheel sleeps until its next occupied slot and has no clock timer at all while it is empty. It follows
 * monotonic time, so steps of the wall clock do not touch it.
 *
 * A hierarchical timing wheel (Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987): six
 * levels of 32 slots, where a slot of level 0 is 1 ms and a slot of each next level is all of the one below.
 * Invariants:
 * - An entry lies on the level of the highest 5-bit digit in which its tick differs from the present one. So all
 *   of level 0 is due before the next slot of level 1, and so on, and the next slot is found from the bitmaps.
 * - A slot of a higher level is spread over the lower ones when its first tick comes, before anything is added
 *   to those directly; that keeps the order.
 * - What is due beyond the present 2^30 ms (12 days) waits in one list, spread when those are over.
 */
import { setImmediate, type Clock, type Timer, type TimerOptions } from './clock.js'

const DIGIT = 5
const SLOTS = 1 << DIGIT
const LEVELS = 6
/** Ticks that the levels span. */
const SPAN = 1 << (DIGIT * LEVELS)
/** The list after those of the slots. */
const FAR = LEVELS * SLOTS

let remove: (wheel: TimeWheel, entry: Entry) => void

/** One timer; also the head of each circular list, with the list's number in `tick`. One shape, so that it stays fast. */
class Entry implements Timer {
  readonly wheel: TimeWheel
  /** The first ms of the wheel at which it may fire. */
  readonly tick: number
  readonly hold: boolean
  action: (() => void) | undefined
  previous: Entry = this
  /** Itself when it is in no list: it fired or was cancelled. */
  next: Entry = this

  constructor(wheel: TimeWheel, tick: number, action: (() => void) | undefined, hold: boolean) {
    this.wheel = wheel
    this.tick = tick
    this.action = action
    this.hold = hold
  }

  cancel(): void {
    if (this.next !== this) remove(this.wheel, this)
  }
}

/**
 * ms that the difference of two times may lack through a float's last digits, up to a year of them. A timer that fires on
 * its tick by the clock would otherwise be taken for early, and wait for a whole ms more.
 */
const ROUNDING = 2 ** -16

export class TimeWheel {
  static {
    remove = (wheel, entry) => wheel.#cancel(entry)
  }

  readonly #clock: Clock
  readonly #onError: (error: unknown) => void
  /** Monotonic time at tick 0. */
  readonly #origin: number
  readonly #lists: Entry[] = []
  /** One bit for each slot of each level: whether its list holds anything. */
  readonly #occupied = new Int32Array(LEVELS)
  /** What fires at present. */
  readonly #firing: Entry
  /** Everything up to and including this tick has fired. */
  #tick = 0
  /** The first tick of the present SPAN. */
  #spanStart = 0
  #size = 0
  /** How many entries hold the process. */
  #holding = 0
  #timer: Timer | undefined
  /** The tick at which the clock timer fires; Infinity without one. */
  #wakeTick = Infinity
  #timerHolds = false
  #running = false
  #idleCheck = false
  #closed = false

  /** @param onError gets what an action throws; what it throws itself is dropped */
  constructor(clock: Clock, onError: (error: unknown) => void) {
    this.#clock = clock
    this.#onError = onError
    this.#origin = clock.monotonic()
    for (let list = 0; list <= FAR; list++) this.#lists.push(new Entry(this, list, undefined, false))
    this.#firing = new Entry(this, -1, undefined, false)
  }

  /** How many timers are waiting. */
  get size(): number {
    return this.#size
  }

  /**
   * Calls `action` once, at least `delay` ms later.
   *
   * @param delay any finite number of ms; below 1 counts as 1
   */
  add(delay: number, action: () => void, options?: TimerOptions): Timer {
    if (this.#closed) throw new Error('the time wheel is closed')
    if (!(Math.abs(delay) < Infinity)) throw new RangeError(`a timer needs a finite delay, got ${delay}`)
    const now = this.#clock.monotonic() - this.#origin
    // Nothing lies before the tick at which we wake, so the hand may move on. Short delays then get a low level.
    const tick = Math.floor(now + ROUNDING)
    if (!this.#running && tick < this.#wakeTick) this.#moveTo(tick)
    const hold = options !== undefined && options.hold === true
    const entry = new Entry(this, Math.ceil(now + (delay > 1 ? delay : 1)), action, hold)
    this.#size++
    if (hold) this.#holding++
    const wakeTick = this.#place(entry)
    if (!this.#running && (wakeTick < this.#wakeTick || (hold && !this.#timerHolds))) this.#arm()
    return entry
  }

  /** Forgets every timer; nothing fires any more, and nothing can be added. Safe to call twice. */
  close(): void {
    this.#closed = true
    for (const list of this.#lists) this.#empty(list)
    this.#empty(this.#firing)
    this.#occupied.fill(0)
    this.#size = 0
    this.#holding = 0
    this.#disarm()
  }

  /** Puts an entry where its tick belongs. @returns the tick at which its list has to be looked at */
  #place(entry: Entry): number {
    const offset = entry.tick - this.#spanStart
    if (offset >= SPAN) {
      append(this.#lists[FAR] as Entry, entry)
      return this.#spanStart + SPAN
    }
    // For equal ticks clz32 is 32, and -1 / 5 | 0 is level 0.
    const level = ((31 - Math.clz32(offset ^ (this.#tick - this.#spanStart))) / DIGIT) | 0
    const shift = level * DIGIT
    const slot = (offset >>> shift) & (SLOTS - 1)
    append(this.#lists[level * SLOTS + slot] as Entry, entry)
    ;(this.#occupied[level] as number) |= 1 << slot
    return this.#spanStart + ((offset >>> shift) << shift)
  }

  #cancel(entry: Entry): void {
    const { previous, next } = entry
    unlink(entry)
    // Only the head is left: it is both neighbours.
    if (previous === next) this.#markEmpty(previous)
    entry.action = undefined
    this.#size--
    if (entry.hold) {
      this.#holding--
      if (this.#holding === 0 && !this.#running) this.#arm()
    }
    // A timer of the clock costs more than one of ours: a wheel that is filled again within the turn keeps it.
    if (this.#size === 0 && this.#timer !== undefined && !this.#idleCheck) {
      this.#idleCheck = true
      setImmediate(this.#disarmIfIdle)
    }
  }

  readonly #disarmIfIdle = (): void => {
    this.#idleCheck = false
    if (this.#size === 0) this.#disarm()
  }

  #markEmpty(head: Entry): void {
    const list = head.tick
    if (list >= 0 && list < FAR) (this.#occupied[(list / SLOTS) | 0] as number) &= ~(1 << (list % SLOTS))
  }

  /** The number of the list that comes next, -1 when all are empty. */
  #nextList(): number {
    const offset = this.#tick - this.#spanStart
    for (let level = 0; level < LEVELS; level++) {
      // What lies before the present slot is empty.
      const bits = (this.#occupied[level] as number) & (-1 << ((offset >>> (level * DIGIT)) & (SLOTS - 1)))
      if (bits !== 0) return level * SLOTS + (31 - Math.clz32(bits & -bits))
    }
    const far = this.#lists[FAR] as Entry
    return far.next === far ? -1 : FAR
  }

  /** The first tick of a list that lies ahead. */
  #tickOf(list: number): number {
    if (list === FAR) return this.#spanStart + SPAN
    const shift = ((list / SLOTS) | 0) * DIGIT
    const above = shift + DIGIT
    const offset = this.#tick - this.#spanStart
    return this.#spanStart + (((offset >>> above) << above) | ((list % SLOTS) << shift))
  }

  #arm(): void {
    const list = this.#nextList()
    if (list < 0) {
      this.#disarm()
      return
    }
    const wakeTick = this.#tickOf(list)
    const hold = this.#holding > 0
    if (wakeTick === this.#wakeTick && hold === this.#timerHolds) return
    this.#disarm()
    this.#wakeTick = wakeTick
    this.#timerHolds = hold
    const delay = wakeTick - (this.#clock.monotonic() - this.#origin)
    this.#timer = this.#clock.after(delay, this.#run, { hold })
  }

  #disarm(): void {
    this.#timer?.cancel()
    this.#forgetTimer()
  }

  #forgetTimer(): void {
    this.#timer = undefined
    this.#wakeTick = Infinity
    this.#timerHolds = false
  }

  /** Everything that is due by now. What the actions add is due later, so this ends. */
  readonly #run = (): void => {
    this.#forgetTimer()
    this.#running = true
    const now = Math.floor(this.#clock.monotonic() - this.#origin + ROUNDING)
    for (let list = this.#nextList(); list >= 0; list = this.#nextList()) {
      const tick = this.#tickOf(list)
      if (tick > now) break
      this.#moveTo(tick)
      const head = this.#lists[list] as Entry
      moveAll(head, this.#firing)
      this.#markEmpty(head)
      if (list < SLOTS) this.#fireAll()
      else this.#spread()
    }
    if (!this.#closed) this.#moveTo(now)
    this.#running = false
    this.#arm()
  }

  #moveTo(tick: number): void {
    this.#tick = tick
    while (tick - this.#spanStart >= SPAN) this.#spanStart += SPAN
  }

  #fireAll(): void {
    for (let entry = this.#firing.next; entry !== this.#firing; entry = this.#firing.next) {
      unlink(entry)
      this.#size--
      if (entry.hold) this.#holding--
      const action = entry.action as () => void
      entry.action = undefined
      try {
        action()
      } catch (error) {
        this.#report(error)
      }
    }
  }

  #report(error: unknown): void {
    try {
      this.#onError(error)
    } catch {
      // The other timers must still fire.
    }
  }

  #spread(): void {
    for (let entry = this.#firing.next; entry !== this.#firing; entry = this.#firing.next) {
      unlink(entry)
      this.#place(entry)
    }
  }

  #empty(head: Entry): void {
    for (let entry = head.next; entry !== head; entry = head.next) {
      unlink(entry)
      entry.action = undefined
    }
  }
}

function append(head: Entry, entry: Entry): void {
  const last = head.previous
  entry.previous = last
  entry.next = head
  last.next = entry
  head.previous = entry
}

function unlink(entry: Entry): void {
  entry.previous.next = entry.next
  entry.next.previous = entry.previous
  entry.previous = entry
  entry.next = entry
}

/** Moves all of a list that is not empty into an empty one. */
function moveAll(from: Entry, to: Entry): void {
  to.next = from.next
  to.previous = from.previous
  to.next.previous = to
  to.previous.next = to
  from.next = from
  from.previous = from
}
