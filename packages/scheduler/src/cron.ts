/**
 * When a cron expression comes next.
 *
 * Which dates match is read from the calendar, as if there were no zones, and so is which *local* times match. Which
 * instant a local time is, is decided here, by one rule for every expression. With fixed hours, each local time that
 * matches comes once: a repeated one at its first pass, and what lies in a gap at the first instant after it (once,
 * however many times lie in it). With wildcard hours an expression follows real time: it comes at exactly the instants at
 * which the clocks on the wall show a time that matches.
 */
import { optionError } from '@neotask/core'
import { datesOf, DAY, type Dates } from './cron-dates.js'
import { impossible, parseExpression, type CronFields } from './cron-syntax.js'
import { LOOK_BACK, makeRoom, zoneOf, type Zone } from './zone.js'

/** Parsed expressions are kept for whoever asks next: as many as schedules may be due at one instant. */
const MAX_CRONS = 20_000
/** Slots that an expression remembers: that of the schedules that use it, and of a preview beside them. */
const MAX_SLOTS = 4
/** The calendar repeats after 400 years, and is searched for as many: what does not come from here never comes. */
const CALENDAR_START = Date.UTC(2000, 0, 1)
/** Earlier instants are taken for this one, where the calendar of the calculator begins. */
const EARLIEST = -62_135_000_000_000
/** The year 3000, where it ends. */
const LATEST = Date.UTC(3000, 0, 1)

const crons = new Map<string, Cron>()

/**
 * A cron expression, checked and ready.
 *
 * @param expression five fields (minute, hour, day of month, month, weekday), six (second first), or `@daily` and the
 *   like; see the guide page on cron
 * @param zone a name of the IANA data, such as `Europe/Berlin`. Default: `UTC`
 * @throws ValidationError `CRON_INVALID` for one that is malformed or can never come, `ZONE_INVALID`
 */
export function parseCron(expression: string, zone = 'UTC'): Cron {
  const key =
    typeof expression === 'string' && typeof zone === 'string' ? `${zone}\n${expression}` : undefined
  const known = key === undefined ? undefined : crons.get(key)
  if (known !== undefined) return known
  const cron = new Cron(parseExpression(expression), zone)
  makeRoom(crons, MAX_CRONS)
  crons.set(`${zone}\n${expression}`, cron)
  return cron
}

/** Made by {@link parseCron}. */
export class Cron {
  /** As written, with single spaces. */
  readonly expression: string
  /** As written. */
  readonly zone: string
  readonly #zone: Zone
  readonly #fields: CronFields
  readonly #dates: Dates
  readonly #followsRealTime: boolean
  /** The answers given last: `next` is the first slot after each instant from `after` until it. */
  readonly #slots: { after: number; next: number }[] = []

  /** @internal */
  constructor(fields: CronFields, zone: string) {
    this.expression = fields.expression
    this.zone = zone
    this.#zone = zoneOf(zone)
    this.#fields = fields
    this.#dates = datesOf(fields)
    this.#followsRealTime = fields.hour.star || fields.hour.all
    if (this.#dates.firstFrom(CALENDAR_START) === undefined) throw impossible(fields)
  }

  /**
   * The first instant after another one, at which the expression comes.
   *
   * The rule for changes of the clocks (daylight saving time, and any other):
   *
   * - **Wildcard hours**, when a member of the hour's field is written with a star (`*`, `*\/2`) or the field names
   *   all 24: the expression comes at exactly the instants whose local time matches. So `*\/15 * * * *` comes every
   *   15 minutes of real time, in a repeated hour too, and nothing is made up for an hour that was skipped.
   * - **Fixed hours**, all others: each local time that matches comes once. One that is repeated comes at its first
   *   pass. Those that are skipped come once together, at the first instant after the gap.
   *
   * @param after ms since 1970 in UTC
   * @returns ms since 1970 in UTC, later than `after`; undefined when there is none before the year 3000
   * @throws ValidationError `OPTION_INVALID` when `after` is no finite number
   */
  next(after: number): number | undefined {
    if (!Number.isFinite(after)) throw optionError('after', 'ms since 1970', after)
    const known = this.#slots.find((slot) => slot.after <= after && after < slot.next)
    if (known !== undefined) return known.next
    const next = after < LATEST ? this.#search(Math.max(Math.floor(after), EARLIEST)) : undefined
    if (next !== undefined) {
      if (this.#slots.length === MAX_SLOTS) this.#slots.shift()
      this.#slots.push({ after, next })
    }
    return next
  }

  /** Bounded: each turn gets to a later span, and the calculator ends the search in the year 3000. */
  #search(after: number): number | undefined {
    let span = this.#zone.spanAt(after)
    let from = after + span.offset
    // What the clocks had shown before the span began has come already.
    if (!this.#followsRealTime) from = Math.max(from, span.shownBefore - 1)
    let local = this.#localAfter(from)
    while (local !== undefined) {
      if (local - span.offset < span.end) return local - span.offset
      const change = span.end
      // Nothing comes for long: changes in between do not matter, except one that may repeat what was before `after`.
      const later = local - LOOK_BACK
      if (later > change && change > after + LOOK_BACK) {
        span = this.#zone.spanAt(later)
        continue
      }
      const next = this.#zone.spanAt(change)
      const shows = change + next.offset
      if (this.#followsRealTime) {
        // After a gap, what lay in it is over; after a repetition, it may match again.
        if (local < shows || next.offset < span.offset) local = this.#localAfter(shows - 1)
      } else if (local < shows) {
        return change
      }
      span = next
    }
    return undefined
  }

  /** The first local time after another one that matches, both as if the zone were UTC. */
  #localAfter(local: number): number | undefined {
    const today = Math.floor(local / DAY) * DAY
    const date = this.#dates.firstFrom(today)
    if (date !== today) return date === undefined ? undefined : date + timeFrom(this.#fields, 0)
    const time = timeFrom(this.#fields, Math.floor((local - today) / 1000) + 1)
    if (time < DAY) return today + time
    const next = this.#dates.firstFrom(today + DAY)
    return next === undefined ? undefined : next + timeFrom(this.#fields, 0)
  }
}

/**
 * The first time of day that matches, in ms; Infinity if there is none left.
 *
 * @param from in seconds, inclusive
 */
function timeFrom({ hour, minute, second }: CronFields, from: number): number {
  for (const h of hour.values) {
    if (h * 3600 + 3599 < from) continue
    for (const m of minute.values) {
      if (h * 3600 + m * 60 + 59 < from) continue
      for (const s of second.values) {
        const time = h * 3600 + m * 60 + s
        if (time >= from) return time * 1000
      }
    }
  }
  return Infinity
}
