/**
 * Which dates an expression names: its fields of day, month and weekday, by croner, on a calendar without zones.
 *
 * Expressions with the same days share one calculation and its answers, since most have `* * *`.
 */
import { CronDate, CronPattern, type CronOptions } from 'croner'
import type { CronFields } from './cron-syntax.js'
import { makeRoom } from './zone.js'

export const DAY: number = 86_400_000

const MAX_DATES = 10_000
/** Answers that are kept for each: today and tomorrow, and what a preview asks for. */
const MAX_ANSWERS = 32

const known = new Map<string, Dates>()

export function datesOf({ day, month, weekday, days }: CronFields): Dates {
  const text = `${day.text} ${month.text} ${weekday.text}`
  const key = `${text} ${days}`
  let dates = known.get(key)
  if (dates === undefined) {
    dates = new Dates(text, days)
    makeRoom(known, MAX_DATES)
    known.set(key, dates)
  }
  return dates
}

export class Dates {
  readonly #pattern: CronPattern
  readonly #options: CronOptions
  readonly #answers = new Map<number, number | undefined>()

  /** @param text the three fields in digits */
  constructor(text: string, days: CronFields['days']) {
    this.#pattern = new CronPattern(`0 0 0 ${text}`, undefined, { mode: '6-part' })
    // Its 10 000 years are not read where all of them match.
    this.#pattern.year = []
    this.#options = { domAndDow: days === 'both' }
  }

  /**
   * The first date that matches, from another one on.
   *
   * @param date the midnight that begins it, in ms as if the zone were UTC
   * @returns the same of the date found; undefined if there is none within 400 years or before the year 3000
   */
  firstFrom(date: number): number | undefined {
    if (this.#answers.has(date)) return this.#answers.get(date)
    const before = new CronDate(new Date(date - 1000), 0)
    const first = before.increment(this.#pattern, this.#options, false)?.getTime()
    makeRoom(this.#answers, MAX_ANSWERS)
    this.#answers.set(date, first)
    if (first !== undefined) this.#answers.set(first, first)
    return first
  }
}
