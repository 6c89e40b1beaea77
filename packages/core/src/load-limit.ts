/**
 * When a node has enough: measures how far behind its event loop is and how much memory it has used, and says when a
 * limit is passed and when all is well again.
 *
 * One look is enough to be over a limit, since each is a mean of half a second. Back under it is who has been below 80 %
 * of every limit for 2 s, so that a load near a limit does not switch the node on and off.
 */
import { totalmem } from 'node:os'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { getHeapStatistics } from 'node:v8'
import { checkKeys, checkObject } from './checks.js'
import type { Clock, Timer } from './clock.js'
import { parseDuration, type Duration } from './duration.js'
import { optionError } from './errors.js'

/** At least one of them. */
export interface LoadLimitOptions {
  /** How long an event waits for the event loop, on the average of half a second. Example: `'100ms'`. */
  eventLoopDelay?: Duration | undefined
  /**
   * The used part of the memory, above 0 and below 1: of V8's heap limit, or of what the operating system lets the
   * process have (of the container, else of the machine), whichever is used more. Example: `0.85`.
   */
  memory?: number | undefined
}

/** The limits in force: ms, and a part of 1. */
export interface LoadLimits {
  readonly eventLoopDelay?: number | undefined
  readonly memory?: number | undefined
}

/** What a node has too much of. */
export interface Overload {
  readonly measure: 'eventLoopDelay' | 'memory'
  /** As last measured, and the limit: ms, or a part of 1. */
  readonly value: number
  readonly limit: number
}

export function resolveLoadLimit(given: LoadLimitOptions): LoadLimits {
  checkObject(given, 'loadLimit', '{ eventLoopDelay, memory }')
  checkKeys(given, ['eventLoopDelay', 'memory'], 'loadLimit.')
  const { eventLoopDelay, memory } = given
  if (eventLoopDelay === undefined && memory === undefined)
    throw optionError('loadLimit', 'eventLoopDelay, memory, or both', given)
  if (memory !== undefined && !(typeof (memory as unknown) === 'number' && memory > 0 && memory < 1))
    throw optionError('loadLimit.memory', 'a number above 0 and below 1', memory)
  if (eventLoopDelay === undefined) return { memory }
  return { eventLoopDelay: parseDuration(eventLoopDelay, 'loadLimit.eventLoopDelay', { min: 1 }), memory }
}

/** Where the numbers come from. */
export interface LoadMeasures {
  /** ms that an event waited on average since the last call. */
  eventLoopDelay(): number
  /** From 0 to 1. */
  memory(): number
  /** Ends the measuring. */
  close(): void
}

export interface LoadMonitorHost {
  readonly clock: Clock
  /** Over a limit, or (`undefined`) no more. */
  changed(overload: Overload | undefined): void
}

/** ms between two looks. */
const LOOK = 500
/** Well is who is below this part of every limit for so many ms. */
const WELL = 0.8
const CALM = 2000

export class LoadMonitor {
  readonly #limits: LoadLimits
  readonly #host: LoadMonitorHost
  readonly #makeMeasures: (limits: LoadLimits) => LoadMeasures
  #measures: LoadMeasures | undefined
  #timer: Timer | undefined
  #overload: Overload | undefined
  /** Monotonic ms since when it is well, while it is over. */
  #wellSince: number | undefined

  constructor(
    limits: LoadLimits,
    host: LoadMonitorHost,
    makeMeasures: (limits: LoadLimits) => LoadMeasures = measureProcess,
  ) {
    this.#limits = limits
    this.#host = host
    this.#makeMeasures = makeMeasures
  }

  /** What there is too much of, as last measured. */
  get overload(): Overload | undefined {
    return this.#overload
  }

  /** Begins to measure. Safe to call twice. */
  start(): void {
    if (this.#measures !== undefined) return
    this.#measures = this.#makeMeasures(this.#limits)
    this.#arm()
  }

  /** Measures no more, and is over nothing. Safe to call twice. */
  stop(): void {
    this.#timer?.cancel()
    this.#measures?.close()
    this.#measures = undefined
    this.#overload = undefined
    this.#wellSince = undefined
  }

  #arm(): void {
    this.#timer = this.#host.clock.after(LOOK, () => this.#look(), { poll: true })
  }

  #look(): void {
    const measures = this.#measures
    if (measures === undefined) return
    const { eventLoopDelay, memory } = this.#limits
    const loads: Overload[] = []
    if (eventLoopDelay !== undefined)
      loads.push({ measure: 'eventLoopDelay', value: measures.eventLoopDelay(), limit: eventLoopDelay })
    if (memory !== undefined) loads.push({ measure: 'memory', value: measures.memory(), limit: memory })
    this.#judge(loads)
    this.#arm()
  }

  #judge(loads: readonly Overload[]): void {
    const over = loads.find(({ value, limit }) => value > limit)
    if (this.#overload === undefined) {
      if (over === undefined) return
      this.#overload = over
      this.#host.changed(over)
      return
    }
    const now = this.#host.clock.monotonic()
    if (!loads.every(({ value, limit }) => value < limit * WELL)) {
      this.#wellSince = undefined
      this.#overload = over ?? this.#overload
      return
    }
    this.#wellSince ??= now
    if (now - this.#wellSince < CALM) return
    this.#overload = undefined
    this.#wellSince = undefined
    this.#host.changed(undefined)
  }
}

/** ms between two samples of the loop. */
const RESOLUTION = 10

/** Measures this process; what has no limit is not looked at. */
function measureProcess({ eventLoopDelay, memory }: LoadLimits): LoadMeasures {
  const loop = eventLoopDelay === undefined ? undefined : new LoopDelay()
  const limit = memory === undefined ? Infinity : memoryLimit()
  return {
    eventLoopDelay: () => loop?.read() ?? 0,
    memory: () => {
      const { used_heap_size: used, heap_size_limit: most } = getHeapStatistics()
      return Math.max(used / most, process.memoryUsage.rss() / limit)
    },
    close: () => loop?.close(),
  }
}

/**
 * The wait of an event that comes at any time: it comes more likely in a long turn of the loop, and waits for half of it,
 * which makes E[d²] / 2 E[d]. The mean of the turns would hide one of three seconds behind fifty short ones.
 *
 * The histogram is never reset, because it then drops the turn that is under way, and with turns that are longer than the
 * time between two looks it would drop them all. What is new is the difference of the sums.
 */
class LoopDelay {
  readonly #turns = monitorEventLoopDelay({ resolution: RESOLUTION })
  #sum = 0
  #squares = 0

  constructor() {
    this.#turns.enable()
  }

  /** ms, since the last call. */
  read(): number {
    const { count, mean, stddev } = this.#turns
    // Nothing was sampled yet: all of them are NaN.
    if (count === 0) return 0
    const [m, d] = [mean / 1e6, stddev / 1e6]
    const [sum, squares] = [m * count, (m * m + d * d) * count]
    const [time, wait] = [sum - this.#sum, (squares - this.#squares) / 2]
    this.#sum = sum
    this.#squares = squares
    // Of the sampling itself a turn has RESOLUTION.
    return time < RESOLUTION ? 0 : Math.max(0, wait / time - RESOLUTION / 2)
  }

  close(): void {
    this.#turns.disable()
  }
}

/** Bytes that the process may have. */
function memoryLimit(): number {
  const machine = totalmem()
  // 0 or an absurd number when there is no such limit.
  const container = process.constrainedMemory()
  return container > 0 && container < machine ? container : machine
}
