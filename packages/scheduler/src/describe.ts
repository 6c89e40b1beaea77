/** A cron expression in words, for people who look at a schedule. */
import { optionError } from '@neotask/core'
import { clockOf, daysOf, type Clock, type Days } from './cron-outline.js'
import { parseExpression } from './cron-syntax.js'
import { chinese } from './words-zh.js'
import { english } from './words-en.js'

/** English and Chinese (simplified). */
export type Locale = 'en' | 'zh'

const LANGUAGES: ReadonlyMap<unknown, (clock: Clock, days: Days) => string> = new Map([
  ['en', english],
  ['zh', chinese],
])

/**
 * Says in words when an expression comes: `0 9 * * 1-5` is `At 09:00, Monday to Friday`, and in Chinese
 * `每周一至周五 09:00`. Times are those of the schedule's zone, which is not named.
 *
 * @param expression as for `parseCron`
 * @param locale Default: `'en'`
 * @throws ValidationError `CRON_INVALID` for a malformed expression, `OPTION_INVALID` for another locale
 */
export function describe(expression: string, locale: Locale = 'en'): string {
  const words = LANGUAGES.get(locale)
  if (words === undefined) throw optionError('locale', `'en' or 'zh'`, locale)
  const fields = parseExpression(expression)
  return words(clockOf(fields), daysOf(fields))
}
