/**
 * The offsets of a time zone, from the IANA data that Node carries (`Intl`).
 *
 * Asking `Intl` costs microseconds, so what it says is kept as spans of one offset. A span is found by probing every
 * three days and bisecting where two probes differ; no zone has ever changed twice within three days.
 */
import { ValidationError, show } from '@neotask/core'

/** A stretch of time in which the zone keeps one offset. All in ms. */
export interface Span {
  /** The first instant after it. The offset may go on, or change there. */
  readonly end: number
  /** What is added to an instant to get what the clocks on the wall show. */
  readonly offset: number
  /** Local times before this one had already been shown before the span began; -Infinity if none had. */
  readonly shownBefore: number
}

const DAY = 86_400_000
const CHUNK = 32 * 3 * DAY
const PROBE = 3 * DAY
/** No change moves the clocks by more than a day, so what lies this far back cannot be repeated. */
export const LOOK_BACK: number = 2 * DAY
/** Each holds 96 days; a zone that is asked for more keeps the latest. */
const MAX_CHUNKS = 1000
const MAX_ZONES = 1000

const zones = new Map<string, Zone>()

/**
 * @param name of the IANA data, such as `Europe/Berlin`; in any case of letters
 * @throws ValidationError `ZONE_INVALID`
 */
export function zoneOf(name: unknown): Zone {
  const known = zones.get(name as string)
  if (known !== undefined) return known
  const zone = new Zone(formatOf(name))
  makeRoom(zones, MAX_ZONES)
  zones.set(name as string, zone)
  return zone
}

export class Zone {
  readonly #format: Intl.DateTimeFormat
  readonly #chunks = new Map<number, Span[]>()

  constructor(format: Intl.DateTimeFormat) {
    this.#format = format
  }

  /** One for all spellings and aliases of it; which one depends on the version of Node. */
  get name(): string {
    return this.#format.resolvedOptions().timeZone
  }

  /** The span that holds an instant. */
  spanAt(instant: number): Span {
    const index = Math.floor(instant / CHUNK)
    let spans = this.#chunks.get(index)
    if (spans === undefined) {
      spans = this.#spansOf(index * CHUNK)
      makeRoom(this.#chunks, MAX_CHUNKS)
      this.#chunks.set(index, spans)
    }
    let i = 0
    while ((spans[i] as Span).end <= instant) i++
    return spans[i] as Span
  }

  #spansOf(from: number): Span[] {
    const spans: Span[] = []
    const until = from + CHUNK
    let shownBefore = -Infinity
    let probe = from - LOOK_BACK
    let offset = this.#offsetAt(probe)
    while (probe < until) {
      const next = Math.min(probe + PROBE, until)
      const offsetThen = this.#offsetAt(next)
      if (offsetThen !== offset) {
        const change = this.#changeBetween(probe, next, offset)
        spans.push({ end: change, offset, shownBefore })
        shownBefore = Math.max(shownBefore, change + offset)
        offset = offsetThen
      }
      probe = next
    }
    spans.push({ end: until, offset, shownBefore })
    return spans
  }

  /** The first second in (`from`, `to`] that no longer has the offset. */
  #changeBetween(from: number, to: number, offset: number): number {
    while (to - from > 1000) {
      const middle = from + Math.floor((to - from) / 2000) * 1000
      if (this.#offsetAt(middle) === offset) from = middle
      else to = middle
    }
    return to
  }

  #offsetAt(instant: number): number {
    // `1/31/2026, GMT+05:30`, with seconds in old times, `GMT` alone for 0.
    const text = this.#format.format(instant)
    const at = text.indexOf('GMT') + 3
    if (at === text.length) return 0
    const [hours = 0, minutes = 0, seconds = 0] = text
      .slice(at + 1)
      .split(':')
      .map(Number)
    const size = ((hours * 60 + minutes) * 60 + seconds) * 1000
    return text[at] === '+' ? size : -size
  }
}

/** Abbreviations of three letters that are names of the IANA data. */
const SHORT_NAMES = new Set('CET EET EST GMT HST MET MST PRC ROC ROK UCT UTC WET'.split(' '))

function formatOf(name: unknown): Intl.DateTimeFormat {
  if (typeof name !== 'string' || name === '') throw invalid(name)
  // Some versions of Node take offsets, and all take old names of ICU such as CST, which China reads otherwise.
  if (/^[+-]/.test(name)) throw invalid(name, 'an offset is no zone')
  if (/^[a-z]{3}$/i.test(name) && !SHORT_NAMES.has(name.toUpperCase())) {
    throw invalid(name, 'an abbreviation may mean several zones')
  }
  try {
    return new Intl.DateTimeFormat('en-US', { timeZone: name, timeZoneName: 'longOffset' })
  } catch {
    throw invalid(name)
  }
}

function invalid(name: unknown, why?: string): ValidationError {
  const hint = why ?? hintFor(name)
  const expected = `a name of the IANA data, such as 'UTC' or 'Europe/Berlin'`
  const message = `zone: expected ${expected}, got ${show(name)}${hint === undefined ? '' : `, ${hint}`}`
  return new ValidationError('ZONE_INVALID', message)
}

/** The zone of a town that was written without its continent, or with a blank for a line. */
function hintFor(name: unknown): string | undefined {
  if (typeof name !== 'string' || name === '') return undefined
  const town = name.trim().replaceAll(' ', '_').toLowerCase()
  const near = ['UTC', ...Intl.supportedValuesOf('timeZone')].find((zone) => {
    const known = zone.toLowerCase()
    return known === town || known.endsWith(`/${town}`)
  })
  return near === undefined ? undefined : `did you mean ${near}?`
}

/** Drops the oldest entries of a full cache. */
export function makeRoom(cache: Map<unknown, unknown>, limit: number): void {
  for (const key of cache.keys()) {
    if (cache.size < limit) return
    cache.delete(key)
  }
}
