import { NeoTaskError, ValidationError } from '@neotask/core'
import { describe, expect, it } from 'vitest'
import { parseCron } from './cron.js'

const NOW = Date.parse('2026-06-15T12:00:00Z')

function next(expression: string, after: string, zone?: string): string | undefined {
  const at = parseCron(expression, zone).next(Date.parse(after))
  return at === undefined ? undefined : new Date(at).toISOString()
}

function refusal(run: () => unknown): NeoTaskError {
  try {
    run()
  } catch (error) {
    expect(error).toBeInstanceOf(ValidationError)
    return error as NeoTaskError
  }
  throw new Error('nothing was thrown')
}

describe('a cron expression', () => {
  it('keeps what was written, with single spaces, and is in UTC unless told otherwise', () => {
    expect(parseCron('  0  9\t* * MON-fri ')).toMatchObject({ expression: '0 9 * * MON-fri', zone: 'UTC' })
    expect(parseCron('@daily', 'Asia/Shanghai')).toMatchObject({
      expression: '@daily',
      zone: 'Asia/Shanghai',
    })
    expect(next('@daily', '2026-06-15T12:00:00Z', 'Asia/Shanghai')).toBe('2026-06-15T16:00:00.000Z')
  })

  it('is the same object for the same expression and zone', () => {
    expect(parseCron('1 2 3 4 *')).toBe(parseCron('1 2 3 4 *', 'UTC'))
    expect(parseCron('1 2 3 4 *')).not.toBe(parseCron('1 2 3 4 *', 'Europe/Berlin'))
  })

  it.each([
    ['@Daily', '0 0 * * *'],
    ['0 0 * Jan sUn', '0 0 * 1 0'],
    ['0 0 l * *', '0 0 L * *'],
    ['0 0 lw * *', '0 0 LW * *'],
    ['0 0 15w * friL', '0 0 15W * 5L'],
    ['0 0 ? * ?', '0 0 * * *'],
    ['*,5 * * * *', '* * * * *'],
    ['00 08 * * *', '0 8 * * *'],
    ['0 0 * * SUN-SUN', '0 0 * * 0'],
    ['*/1 * * * *', '* * * * *'],
    ['0 0 */31 * *', '0 0 1 * *'],
    ['0 0 * * 6-7', '0 0 * * SAT,SUN'],
  ])('%s means %s', (one, other) => {
    const runs = [one, other].map((expression) => {
      const cron = parseCron(expression)
      let at = NOW
      return Array.from({ length: 40 }, () => (at = cron.next(at)!))
    })
    expect(runs[0]).toEqual(runs[1])
  })
})

describe('next', () => {
  it('is strictly later, to the millisecond', () => {
    expect(next('0 9 * * *', '2026-06-15T08:59:59.999Z')).toBe('2026-06-15T09:00:00.000Z')
    expect(next('0 9 * * *', '2026-06-15T09:00:00.000Z')).toBe('2026-06-16T09:00:00.000Z')
    expect(next('* * * * * *', '2026-06-15T09:00:00.001Z')).toBe('2026-06-15T09:00:01.000Z')
    expect(parseCron('* * * * * *').next(NOW - 0.5)).toBe(NOW)
    expect(parseCron('* * * * * *').next(NOW + 0.5)).toBe(NOW + 1000)
  })

  it('answers the same whatever was asked before', () => {
    const asked = [
      '2026-03-28T00:00Z',
      '2026-03-29T00:59Z',
      '2026-03-29T01:00Z',
      '2026-10-25T00:10Z',
      '2026-10-25T01:10Z',
    ]
    const fresh = asked.map((after) => next('0,30 2 * * *', after, 'Europe/Berlin'))
    for (let i = 0; i < 300; i++) {
      const index = (i * 7 + (i % 3)) % asked.length
      const zone = i % 2 === 0 ? 'Europe/Berlin' : 'Europe/Paris' // which has the same rule
      expect(next('0,30 2 * * *', asked[index]!, zone)).toBe(fresh[index])
    }
    expect(fresh).toEqual([
      '2026-03-28T01:00:00.000Z',
      '2026-03-29T01:00:00.000Z',
      '2026-03-30T00:00:00.000Z',
      '2026-10-25T00:30:00.000Z',
      '2026-10-26T01:00:00.000Z',
    ])
  })

  it('remembers the slot that many schedules share', () => {
    const cron = parseCron('0 0 29 2 SUNL', 'Europe/Berlin')
    const took = (slots: number, apart: number): number => {
      const begin = process.hrtime.bigint()
      for (let i = 0; i < slots; i++) cron.next(NOW + i * apart)
      return Number(process.hrtime.bigint() - begin)
    }
    took(100, 40 * 86_400_000)
    // Ten times as many answers that are known take less than those that are searched.
    expect(took(10_000, 1)).toBeLessThan(took(1000, 40 * 86_400_000))
  })

  it('is as fast after many slots as at first', () => {
    const cron = parseCron('*/10 * * * * *')
    let at = NOW
    const took = (slots: number): number => {
      const begin = process.hrtime.bigint()
      for (let i = 0; i < slots; i++) at = cron.next(at) ?? NaN
      return Number(process.hrtime.bigint() - begin) / slots
    }
    took(1000)
    const early = took(2000)
    took(150_000)
    expect(took(2000)).toBeLessThan(early * 10)
    expect(at).toBe(NOW + 155_000 * 10_000)
  })

  it('is bounded: no slot from the year 3000 on, none too early, no endless search', () => {
    expect(next('0 0 29 2 *', '2996-03-01T00:00Z')).toBeUndefined()
    expect(next('* * * * *', '2999-12-31T23:59Z')).toBeUndefined()
    expect(parseCron('* * * * *').next(8.64e15)).toBeUndefined()
    expect(parseCron('* * * * *').next(1e300)).toBeUndefined()
    expect(parseCron('* * * * *').next(-1e300)).toBeLessThan(-62_000_000_000_000)
    expect(next('0 12 1 1 *', '0950-06-01T00:00Z', 'Europe/Berlin')).toBe('0951-01-01T11:06:32.000Z')
  })

  it.each([NaN, Infinity, -Infinity, '0', undefined, null])('refuses %s', (after) => {
    const error = refusal(() => parseCron('* * * * *').next(after as number))
    expect(error).toMatchObject({ code: 'OPTION_INVALID' })
    expect(error.message).toContain('after: expected ms since 1970')
  })

  it('leaves what comes in a repeated hour of the day before, months ahead of the next match', () => {
    // 23:30 comes a second time when the clocks of Beirut go back at midnight; then nothing until December.
    expect(next('30 23 31 * *', '2026-10-24T20:35Z', 'Asia/Beirut')).toBe('2026-10-31T21:30:00.000Z')
    expect(next('30 * 24 * *', '2026-10-24T20:35Z', 'Asia/Beirut')).toBe('2026-10-24T21:30:00.000Z')
    expect(next('30 * 24 * *', '2026-10-24T21:30Z', 'Asia/Beirut')).toBe('2026-11-23T22:30:00.000Z')
  })

  it('knows what was shown before a change at the border of what is kept of a zone', () => {
    // Tunis went back from 02:00 to 01:00 when a span of 96 days since 1970 ended.
    expect(next('30 1 * * *', '2005-09-29T23:00Z', 'Africa/Tunis')).toBe('2005-09-29T23:30:00.000Z')
    expect(next('30 1 * * *', '2005-09-30T00:10Z', 'Africa/Tunis')).toBe('2005-10-01T00:30:00.000Z')
    expect(next('30 * * * *', '2005-09-30T00:10Z', 'Africa/Tunis')).toBe('2005-09-30T00:30:00.000Z')
  })

  it('takes hours as wildcard by a star or by naming all, and as fixed otherwise', () => {
    // Berlin, 2026-10-25: 02:00 comes twice, at 00:00 and at 01:00 in UTC.
    const after = '2026-10-25T00:30Z'
    for (const hours of ['*', '*/2', '*/1', '0-23', '5,*/2', '*,5', '0-11,12-23']) {
      expect(next(`0 ${hours} 25 10 *`, after, 'Europe/Berlin'), hours).toBe('2026-10-25T01:00:00.000Z')
    }
    for (const hours of ['2,4', '0-22/2', '0-22', '2-4']) {
      expect(next(`0 ${hours} 25 10 *`, after, 'Europe/Berlin'), hours).not.toBe('2026-10-25T01:00:00.000Z')
    }
    // A star in another field changes nothing.
    expect(next('* 2 25 10 *', '2026-10-25T00:59Z', 'Europe/Berlin')).toBe('2027-10-25T00:00:00.000Z')
  })
})

describe('a malformed expression', () => {
  it.each([
    ['', 'got 0'],
    [' ', 'got 0'],
    ['*', 'got 1'],
    ['* * * *', 'got 4'],
    ['/5 * * *', 'got 4, did you mean */5 * * * *?'],
    ['* * * * * * 2026', 'got 7; years are not supported'],
    ['* * * * * * * *', 'got 8'],
    ['0 9 1, 15 * *', 'a list has no spaces'],
    ['0 9 1, 15, 20 * *', 'a list has no spaces'],
    ['@dayly', 'did you mean @daily?'],
    ['@', 'expected one of @yearly'],
    ['@reboot', 'which is no time'],
    ['@every 5m', 'use submitInterval'],
    ['@daily *', 'expected one of @yearly'],
    ['0 0 @daily * *', 'day of month: '],
    ['2026-01-01T00:00:00Z', 'got 1'],
    [
      '/5 * * * *',
      'minute: expected 0-59 (alone, as *, a range 1-5, a step */5, or a list of these), got "/5", did you mean */5?',
    ],
    ['/5 * * * * *', 'second: '],
    ['* /2 * * *', 'did you mean */2?'],
    ['0 0 ?/7 * *', 'did you mean */7?'],
    ['/ * * * *', 'minute: '],
    [
      '60 * * * *',
      'minute: expected 0-59 (alone, as *, a range 1-5, a step */5, or a list of these), got "60", did you mean 0?',
    ],
    ['61 * * * *', 'got "61"'],
    ['99999999999999999999 * * * *', 'minute: '],
    ['0-60 * * * *', 'minute: '],
    ['-1 * * * *', 'minute: '],
    ['+1 * * * *', 'minute: '],
    ['1.5 * * * *', 'minute: '],
    ['1e1 * * * *', 'minute: '],
    ['0x1 * * * *', 'minute: '],
    ['１ * * * *', 'minute: '],
    ['＊ * * * *', 'minute: '],
    ['a * * * *', 'minute: '],
    ['? * * * *', 'did you mean *?'],
    ['* ? * * *', 'hour: '],
    ['* * * ? *', 'month: '],
    ['60 * * * * *', 'second: '],
    [
      '* 24 * * *',
      'hour: expected 0-23 (alone, as *, a range 1-5, a step */5, or a list of these), got "24", did you mean 0?',
    ],
    ['* 0-24 * * *', 'hour: '],
    ['* 22-2 * * *', 'a range does not wrap, did you mean 22-23,0-2?'],
    ['* 23-0 * * *', 'did you mean 23,0?'],
    ['50-10/5 * * * *', 'a range does not wrap'],
    ['1-2-3 * * * *', 'minute: '],
    ['1- * * * *', 'minute: '],
    ['*-5 * * * *', 'minute: '],
    ['** * * * *', 'minute: '],
    ['5* * * * *', 'minute: '],
    ['*5 * * * *', 'minute: '],
    [', * * * *', 'a member of the list is empty'],
    ['1, * * * *', 'a member of the list is empty'],
    ['1,,2 * * * *', 'a member of the list is empty'],
    [',1 * * * *', 'a member of the list is empty'],
    ['*/0 * * * *', 'a step is from 1 to 60'],
    ['*/61 * * * *', 'a step is from 1 to 60'],
    ['* */25 * * *', 'a step is from 1 to 24'],
    ['*/ * * * *', 'minute: '],
    ['*/-5 * * * *', 'minute: '],
    ['*/*/5 * * * *', 'minute: '],
    ['*/5/5 * * * *', 'minute: '],
    ['1-5/ * * * *', 'minute: '],
    ['1-5/0 * * * *', 'a step is from 1 to 60'],
    ['5/15 * * * *', 'did you mean 5-59/15?'],
    ['0 0 0 * *', 'day of month: expected 1-31, L, LW, 15W or ?'],
    ['0 0 32 * *', 'day of month: '],
    ['0 0 L-3 * *', 'days before the last one are not supported'],
    ['0 0 5L * *', 'that belongs into the field of weekdays'],
    ['0 0 1#2 * *', 'that belongs into the field of weekdays'],
    ['0 0 W * *', 'day of month: '],
    ['0 0 0W * *', 'day of month: '],
    ['0 0 32W * *', 'day of month: '],
    ['0 0 W15 * *', 'did you mean 15W?'],
    ['0 0 WL * *', 'did you mean LW?'],
    ['0 0 1-5W * *', 'day of month: '],
    ['0 0 */2W * *', 'day of month: '],
    ['0 0 1,LW * *', 'LW stands alone'],
    ['0 0 MON * *', 'day of month: '],
    ['0 0 * 0 *', 'month: expected 1-12 or JAN-DEC'],
    ['0 0 * 13 *', 'month: '],
    ['0 0 * JANUARY *', 'did you mean JAN?'],
    ['0 0 * DEC-FEB *', 'did you mean 12,1-2?'],
    ['0 0 * MON *', 'month: '],
    ['0 0 * L *', 'month: '],
    ['0 0 * * 8', 'weekday: expected 0-7, SUN-SAT, FRI#2, FRIL or ?'],
    ['0 0 * * MONDAY', 'did you mean MON?'],
    ['0 0 * * FRI-MON', 'did you mean 5-6,0-1?'],
    ['0 0 * * 7-2', 'did you mean 0-2?'],
    ['0 0 * * L', 'did you mean 6, or 6L for the last Saturday?'],
    ['0 0 * * 15W', 'that belongs into the field of days of the month'],
    ['0 0 * * 1#0', 'a month has a first to fifth of each weekday'],
    ['0 0 * * 1#6', 'a month has a first to fifth of each weekday'],
    ['0 0 * * 1#', 'weekday: '],
    ['0 0 * * #1', 'weekday: '],
    ['0 0 * * 1#2#3', 'weekday: '],
    ['0 0 * * FRI#L', 'did you mean FRIL?'],
    ['0 0 * * MON-FRI#2', 'weekday: '],
    ['0 0 * * 8L', 'weekday: '],
    ['0 0 * * +MON', 'weekday: '],
    ['0 0 * * JAN', 'weekday: '],
    ['0 0 * * MONTUE', 'weekday: '],
    ['* * * * *;', 'weekday: '],
    [`${'1,'.repeat(500)}1 * * * *`, 'expected at most 1000 characters'],
  ])('%s is refused', (expression, words) => {
    const error = refusal(() => parseCron(expression))
    expect(error).toMatchObject({ code: 'CRON_INVALID', retryable: false })
    expect(error.message).toContain(words)
    expect(error.message).toMatch(/^cron expression ".*": .*got /s)
    expect(error.message.length).toBeLessThan(400)
  })

  it.each([
    undefined,
    null,
    5,
    true,
    {},
    [],
    ['* * * * *'],
    new Date(0),
    Symbol('*'),
    () => '* * * * *',
    5n,
    new String('* * * * *'),
  ])('what is no text is refused (%#)', (expression) => {
    const error = refusal(() => parseCron(expression as string))
    expect(error).toMatchObject({ code: 'CRON_INVALID' })
    expect(error.message).toContain('cron expression: expected text, got ')
  })
})

describe('an expression that can never come', () => {
  it.each([
    '0 0 31 2 *',
    '0 0 30 2 *',
    '0 0 30,31 FEB *',
    '0 0 31 4,6,9,11 *',
    '0 0 0 31 11 ?',
    '* * 30W 2 *',
    '0 0 31 2 */7',
    '0 0 30-31 2 ?',
  ])('%s is refused', (expression) => {
    const error = refusal(() => parseCron(expression, 'Europe/Berlin'))
    expect(error.code).toBe('CRON_INVALID')
    expect(error.message).toContain('can never come: no year has ')
  })

  it.each([
    ['0 0 29 2 *', '2028-02-29'],
    ['0 0 31 2 1', '2027-02-01'], // either: Mondays of February
    ['0 0 29 2 */7', '2032-02-29'], // both: a leap day on a Sunday
    ['0 0 * 2 MON#5', '2044-02-29'],
    ['0 0 30 2,3 *', '2027-03-30'],
  ])('%s is not one', (expression, day) => {
    expect(new Date(parseCron(expression).next(NOW)!).toISOString().slice(0, 10)).toBe(day)
  })
})

describe('a zone', () => {
  it.each([
    'UTC',
    'utc',
    'Etc/GMT+5',
    'Europe/Berlin',
    'europe/berlin',
    'Asia/Kolkata',
    'Asia/Calcutta',
    'US/Pacific',
    'PRC',
    'GMT',
    'EST5EDT',
  ])('%s is known', (zone) => {
    expect(parseCron('@daily', zone).next(NOW)).toBeGreaterThan(NOW)
  })

  it.each([
    ['', 'got ""'],
    [' ', 'got " "'],
    ['UTC ', 'did you mean UTC?'],
    ['Berlin', 'did you mean Europe/Berlin?'],
    ['new york', 'did you mean America/New_York?'],
    ['Europe/Berln', 'got "Europe/Berln"'],
    ['Europe/', 'got'],
    ['+08:00', 'an offset is no zone'],
    ['-0500', 'an offset is no zone'],
    ['GMT+8', 'got "GMT+8"'],
    ['CST', 'an abbreviation may mean several zones'],
    ['ist', 'an abbreviation may mean several zones'],
    ['local', 'got "local"'],
    ['__proto__', 'got'],
  ])('%j is refused', (zone, words) => {
    const error = refusal(() => parseCron('@daily', zone))
    expect(error).toMatchObject({ code: 'ZONE_INVALID', retryable: false })
    expect(error.message).toContain(
      `zone: expected a name of the IANA data, such as 'UTC' or 'Europe/Berlin', got `,
    )
    expect(error.message).toContain(words)
  })

  it.each([null, 0, 8, {}, ['UTC'], true, Symbol('UTC')])('what is no text is refused (%#)', (zone) => {
    expect(refusal(() => parseCron('@daily', zone as string)).code).toBe('ZONE_INVALID')
  })

  it('is not remembered when it was refused', () => {
    for (let i = 0; i < 2; i++)
      expect(refusal(() => parseCron('@daily', 'Nowhere')).code).toBe('ZONE_INVALID')
  })
})
