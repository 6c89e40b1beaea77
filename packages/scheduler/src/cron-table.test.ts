/** Tricky expressions with their next five runs, against a second calculator that shares nothing with the first. */
import { describe, expect, it } from 'vitest'
import { runsAfter } from './calendar.test-helper.js'
import { parseCron } from './cron.js'

const NEW_YEAR = '2026-01-01T00:00:00Z'

/** Expression, and where it matters zone and start. */
const TABLE: readonly (readonly [expression: string, zone?: string, after?: string])[] = [
  // The table of the guide
  ['* * * * *'],
  ['*/5 * * * *'],
  ['0 9 * * *'],
  ['0 9 * * 1'],
  ['0 0 1 * *'],
  ['0 9-17 * * *'],
  // Names for times
  ['@yearly'],
  ['@annually', 'Asia/Shanghai'],
  ['@monthly', 'America/New_York'],
  ['@weekly', 'Europe/Berlin'],
  ['@daily', 'Asia/Tokyo'],
  ['@midnight', 'Asia/Kathmandu'],
  ['@hourly', 'Asia/Kolkata'],
  // Leap days, to 2104 and beyond
  ['0 0 29 2 *'],
  ['0 0 29 2 *', 'UTC', '2096-01-01T00:00:00Z'],
  ['0 12 29 FEB *', 'Pacific/Auckland', '2092-03-01T00:00:00Z'],
  ['0 0 29 2 1', 'UTC', '2027-12-01T00:00:00Z'],
  ['0 0 29 2 */7', 'UTC', '2026-01-01T00:00:00Z'],
  ['0 0 28,29 2 *', 'UTC', '2099-12-01T00:00:00Z'],
  ['59 23 L 2 *', 'UTC', '2099-01-01T00:00:00Z'],
  ['0 0 L 2 *', 'UTC', '2023-01-01T00:00:00Z'],
  ['0 0 29W 2 *', 'UTC', '2024-01-01T00:00:00Z'],
  // Days that some months lack
  ['0 0 31 * *'],
  ['0 0 30 * *'],
  ['0 0 31 4,6,9,11,12 *'],
  ['0 0 30,31 2,3 *'],
  // Day of month with weekday: either, unless one is written with a star
  ['0 0 13 * 5'],
  ['0 0 1,15 * 1'],
  ['0 0 1-7 * MON'],
  ['0 0 1-7 * */7'],
  ['0 0 */2 * 1'],
  ['0 0 */10 * MON-FRI'],
  ['0 0 ? * TUE'],
  ['0 0 13 * ?'],
  ['0 0 1-31 * 1'],
  ['0 0 L * FRI'],
  ['0 0 15W * SUN'],
  ['0 0 13 2 FRI#2'],
  ['0 0 10 10 0,6'],
  // Sunday is 0 and 7
  ['0 0 * * 0'],
  ['0 0 * * 7'],
  ['0 0 * * SUN'],
  ['0 0 * * 5-7'],
  ['0 0 * * FRI-SUN'],
  ['0 0 * * 0-7'],
  ['0 0 * * 1-7/2'],
  ['0 0 * * 7#2'],
  ['0 0 * * 7L'],
  ['0 0 * * 0,7'],
  ['0 0 * * SUN-TUE'],
  // Steps that do not divide
  ['*/7 * * * *'],
  ['*/59 * * * *'],
  ['0 */5 * * *'],
  ['0 */7 * * *', 'Europe/Berlin', '2026-03-28T20:00:00Z'],
  ['0 0 */5 * *'],
  ['0 0 */31 * *'],
  ['0 0 1 */5 *'],
  ['0 0 * * */2'],
  ['*/45 */23 * * *'],
  ['10-50/17 * * * *'],
  ['3-59/14 9-17/3 * * *'],
  ['*/60 */24 * * *'],
  ['*/13 * * * * *'],
  ['5-50/9 */11 * * * *'],
  // Lists and ranges
  ['0,15,30-35,59 8-10,20 * * *'],
  ['5 4 * JAN,JUN,NOV-DEC SUN'],
  ['0 9-17/2 * * mon-fri'],
  ['1 1 1 1 1'],
  ['59 59 23 31 12 *'],
  ['15 30 9 * * *'],
  ['* * * * * *'],
  ['0-2,58 59 23 31 12 *'],
  ['07 08 09 10 *'],
  // Workdays, last and nth
  ['0 0 L * *'],
  ['0 0 1,L * *'],
  ['0 0 LW * *'],
  ['0 0 1W * *'],
  ['0 0 15W * *'],
  ['0 0 31W * *'],
  ['0 0 1W,15W * *'],
  ['0 0 15W,L * *'],
  ['0 0 * * MON#1'],
  ['0 0 * * MON#5'],
  ['0 0 * * 1#1,5#3'],
  ['0 0 * * FRIL'],
  ['0 0 * 2 MON#5'],
  ['0 0 * * 1L,3#2'],
  ['0 18 * 12 5L'],
  // Changes of the clocks
  ['30 2 * * *', 'Europe/Berlin', '2026-03-27T20:00:00Z'],
  ['30 2 * * *', 'Europe/Berlin', '2026-10-23T20:00:00Z'],
  ['0,30 2 * * *', 'America/New_York', '2026-03-06T20:00:00Z'],
  ['*/10 2,3 * * *', 'America/New_York', '2026-03-08T06:00:00Z'],
  ['0 2,3 * * *', 'Europe/Berlin', '2026-03-28T20:00:00Z'],
  ['30 * * * *', 'Europe/Berlin', '2026-03-28T23:45:00Z'],
  ['0 */2 * * *', 'Europe/Berlin', '2026-03-28T22:00:00Z'],
  ['0 */2 * * *', 'Europe/Berlin', '2026-10-24T22:30:00Z'],
  ['0 0-23 * * *', 'Europe/Berlin', '2026-10-24T22:30:00Z'],
  ['*/30 1-2 * * *', 'Europe/London', '2026-10-24T22:30:00Z'],
  ['30 * 1 * *', 'America/Havana', '2026-11-01T04:45:00Z'],
  ['59 59 1 * * *', 'America/New_York', '2026-10-31T00:00:00Z'],
  ['*/20 30 2 * * *', 'Europe/Berlin', '2026-03-28T20:00:00Z'],
  ['30 2 29 3 *', 'Europe/Berlin', '2026-01-01T00:00:00Z'],
  ['30 2 * 3 SUNL', 'Europe/Berlin', '2026-01-01T00:00:00Z'],
  // By half an hour, and by two hours
  ['0,15 2 * * *', 'Australia/Lord_Howe', '2026-10-02T00:00:00Z'],
  ['45 1 * * *', 'Australia/Lord_Howe', '2026-04-03T00:00:00Z'],
  ['*/15 * * * *', 'Australia/Lord_Howe', '2026-04-04T14:20:00Z'],
  ['0 * * * *', 'Australia/Lord_Howe', '2026-10-03T14:20:00Z'],
  ['0,30 1-2 * * *', 'Antarctica/Troll', '2026-03-28T20:00:00Z'],
  ['30 1,2 * * *', 'Antarctica/Troll', '2026-10-24T20:00:00Z'],
  ['15 * * * *', 'Antarctica/Troll', '2026-10-24T23:00:00Z'],
  // At midnight
  ['@daily', 'America/Sao_Paulo', '2018-11-02T00:00:00Z'],
  ['@daily', 'America/Sao_Paulo', '2018-02-15T00:00:00Z'],
  ['30 23 * * *', 'America/Sao_Paulo', '2018-02-15T00:00:00Z'],
  ['30 0 * * *', 'Asia/Beirut', '2026-03-27T00:00:00Z'],
  ['@daily', 'Asia/Beirut', '2026-10-23T00:00:00Z'],
  ['@daily', 'Africa/Cairo', '2026-04-22T00:00:00Z'],
  ['@weekly', 'Africa/Cairo', '2026-10-20T00:00:00Z'],
  ['30 * 31 * *', 'Asia/Beirut', '2027-10-30T20:45:00Z'],
  ['0 0 24 4 *', 'Africa/Cairo', '2026-01-01T00:00:00Z'],
  // A day that never was, and one that was twice
  ['30 12 * * *', 'Pacific/Apia', '2011-12-28T00:00:00Z'],
  ['0 */6 * * *', 'Pacific/Apia', '2011-12-29T12:00:00Z'],
  ['0 0 30 12 *', 'Pacific/Apia', '2011-01-01T00:00:00Z'],
  ['@daily', 'Pacific/Kwajalein', '1993-08-18T00:00:00Z'],
  ['30 12 * * *', 'Pacific/Kwajalein', '1969-09-28T00:00:00Z'],
  // Offsets with seconds, and Ramadan
  ['*/20 * * * *', 'Africa/Monrovia', '1972-01-06T23:00:00Z'],
  ['0 0 7 1 *', 'Africa/Monrovia', '1970-01-01T00:00:00Z'],
  ['0 12 * * *', 'Europe/Amsterdam', '1937-06-29T00:00:00Z'],
  ['30 2 * * *', 'Africa/Casablanca', '2026-02-13T00:00:00Z'],
  ['30 2 * * *', 'Africa/Casablanca', '2026-03-20T00:00:00Z'],
]

describe('tricky expressions', () => {
  it('are many, and none stands twice', () => {
    expect(new Set(TABLE.map((row) => row.join(' '))).size).toBe(TABLE.length)
    expect(TABLE.length).toBeGreaterThan(120)
  })

  it.each(TABLE.map(([expression, zone = 'UTC', after = NEW_YEAR]) => ({ expression, zone, after })))(
    '$expression in $zone after $after',
    ({ expression, zone, after }) => {
      const cron = parseCron(expression, zone)
      const runs: string[] = []
      let at: number | undefined = Date.parse(after)
      while (runs.length < 5 && (at = cron.next(at)) !== undefined) runs.push(new Date(at).toISOString())
      const expected = runsAfter(expression, zone, Date.parse(after), 5)
      expect(expected).toHaveLength(5)
      expect(runs).toEqual(expected.map((instant) => new Date(instant).toISOString()))
    },
  )
})

describe('the second calculator', () => {
  // Worked out by hand, so that both calculators cannot be wrong in the same way.
  it.each([
    ['0,30 2 * * *', 'Europe/Berlin', '2026-03-28T12:00Z', ['2026-03-29T01:00Z', '2026-03-30T00:00Z']],
    ['30 2 * * *', 'Europe/Berlin', '2026-10-24T12:00Z', ['2026-10-25T00:30Z', '2026-10-26T01:30Z']],
    ['0 * * * *', 'Europe/Berlin', '2026-10-24T23:30Z', ['2026-10-25T00:00Z', '2026-10-25T01:00Z']],
    ['0 0 29 2 *', 'UTC', '2097-01-01T00:00Z', ['2104-02-29T00:00Z', '2108-02-29T00:00Z']],
    ['0 0 1-7 * */7', 'UTC', '2026-01-01T00:00Z', ['2026-01-04T00:00Z', '2026-02-01T00:00Z']],
    ['0 0 13 * 5', 'UTC', '2026-02-10T00:00Z', ['2026-02-13T00:00Z', '2026-02-20T00:00Z']],
    ['@daily', 'Africa/Cairo', '2026-04-23T12:00Z', ['2026-04-23T22:00Z', '2026-04-24T21:00Z']],
    ['30 12 * * *', 'Pacific/Apia', '2011-12-30T00:00Z', ['2011-12-30T10:00Z', '2011-12-30T22:30Z']],
  ])('knows %s in %s', (expression, zone, after, expected) => {
    const runs = runsAfter(expression, zone, Date.parse(after), 2)
    expect(runs.map((at) => new Date(at).toISOString().replace(':00.000', ''))).toEqual(expected)
  })
})
