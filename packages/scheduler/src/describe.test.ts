import { describe as group, expect, it } from 'vitest'
import { describe, type Locale } from './describe.js'

group('describe', () => {
  it.each([
    ['* * * * *', 'Every minute', '每分钟'],
    ['*/5 * * * *', 'Every 5 minutes', '每 5 分钟'],
    ['0 9 * * *', 'At 09:00 every day', '每天 09:00'],
    ['0 9 * * 1', 'At 09:00 on Monday', '每周一 09:00'],
    ['0 0 1 * *', 'At 00:00 on day 1 of the month', '每月 1 日 00:00'],
    ['0 9-17 * * *', 'Every hour from 09:00 to 17:00', '每天 09:00 至 17:00 每小时'],
    ['*/7 * * * *', 'At minutes 0, 7, 14 … 56 of every hour', '每小时第 0、7、14 … 56 分'],
    ['30 2 * * *', 'At 02:30 every day', '每天 02:30'],
    ['0,30 2 * * *', 'At 02:00 and 02:30 every day', '每天 02:00 和 02:30'],
    ['0,30 * * * *', 'Every 30 minutes', '每 30 分钟'],
    ['30 * * * *', 'Every hour at minute 30', '每小时第 30 分'],
    ['0 * * * *', 'Every hour', '每小时整点'],
    ['10-20 * * * *', 'At minutes 10 to 20 of every hour', '每小时第 10 至 20 分'],
    ['10-50/20 * * * *', 'At minutes 10, 30 and 50 of every hour', '每小时第 10、30、50 分'],
    ['* 9 * * *', 'Every minute from 09:00 to 09:59', '每天 09:00 至 09:59 每分钟'],
    ['* 9-17 * * *', 'Every minute from 09:00 to 17:59', '每天 09:00 至 17:59 每分钟'],
    [
      '*/15 9-17 * * 1-5',
      'Every 15 minutes from 09:00 to 17:45, Monday to Friday',
      '每周一至周五 09:00 至 17:45 每 15 分钟',
    ],
    ['*/5 */2 * * *', 'Every 5 minutes in hours 0, 2, 4 … 22', '每天 0、2、4 … 22 点的每 5 分钟'],
    ['7,22 9-17 * * *', 'At minutes 7 and 22 of hours 9 to 17', '每天 9 至 17 点的第 7、22 分'],
    ['0 */2 * * *', 'Every 2 hours from 00:00 to 22:00', '每天 00:00 至 22:00 每 2 小时'],
    ['0 */5 * * *', 'Every 5 hours from 00:00 to 20:00', '每天 00:00 至 20:00 每 5 小时'],
    ['0 */12 * * *', 'At 00:00 and 12:00 every day', '每天 00:00 和 12:00'],
    ['30 9,17 * * *', 'At 09:30 and 17:30 every day', '每天 09:30 和 17:30'],
    ['0 22-23 * * *', 'At 22:00 and 23:00 every day', '每天 22:00 和 23:00'],
    [
      '0 1,2,5,9,14,20,23 * * *',
      'At 01:00, 02:00, 05:00, 09:00, 14:00, 20:00 and 23:00 every day',
      '每天 01:00、02:00、05:00、09:00、14:00、20:00 和 23:00',
    ],
    ['0-23 0-23 * * *', 'At minutes 0 to 23 of every hour', '每小时第 0 至 23 分'],
    ['0 0-23 * * *', 'Every hour', '每小时整点'],
    ['0 0 31 1 *', 'At 00:00 on day 31 of January', '每年 1 月 31 日 00:00'],
    ['0 0 29 2 *', 'At 00:00 on day 29 of February', '每年 2 月 29 日 00:00'],
    ['0 0 1,15 * *', 'At 00:00 on days 1 and 15 of the month', '每月 1 日和 15 日 00:00'],
    ['0 0 1-7 * *', 'At 00:00 on days 1 to 7 of the month', '每月 1 至 7 日 00:00'],
    ['0 0 */2 * *', 'At 00:00 on days 1, 3, 5 … 31 of the month', '每月 1、3、5 … 31 日 00:00'],
    ['0 0 L * *', 'At 00:00 on the last day of the month', '每月最后一天 00:00'],
    ['0 0 1,L * *', 'At 00:00 on day 1 and the last day of the month', '每月 1 日和最后一天 00:00'],
    [
      '0 0 LW * *',
      'At 00:00 on the last workday (Monday to Friday) of the month',
      '每月最后一个工作日（周一至周五）00:00',
    ],
    [
      '0 0 15W * *',
      'At 00:00 on the workday (Monday to Friday) nearest to day 15 of the month',
      '每月最接近 15 日的工作日（周一至周五）00:00',
    ],
    [
      '0 0 1W,15W * *',
      'At 00:00 on the workdays (Monday to Friday) nearest to days 1 and 15 of the month',
      '每月最接近 1 日和 15 日的工作日（周一至周五）00:00',
    ],
    ['0 0 * * 7', 'At 00:00 on Sunday', '每周日 00:00'],
    ['0 0 * * FRI-SUN', 'At 00:00, Friday to Sunday', '每周五至周日 00:00'],
    ['0 0 * * 1,3,5', 'At 00:00 on Monday, Wednesday and Friday', '每周一、周三和周五 00:00'],
    ['0 0 * * 6,0', 'At 00:00 on Saturday and Sunday', '每周六和周日 00:00'],
    ['0 0 * * MON#2', 'At 00:00 on the second Monday of the month', '每月第二个周一 00:00'],
    [
      '0 0 * * 1#1,5#3',
      'At 00:00 on the first Monday and the third Friday of the month',
      '每月第一个周一和第三个周五 00:00',
    ],
    ['0 0 * * FRIL', 'At 00:00 on the last Friday of the month', '每月最后一个周五 00:00'],
    [
      '0 0 * * MON,FRIL',
      'At 00:00 on Monday and the last Friday of the month',
      '每周一和每月最后一个周五 00:00',
    ],
    ['0 0 13 * 5', 'At 00:00 on day 13 of the month or on Friday', '每月 13 日或每周五 00:00'],
    [
      '0 0 1,15 * MON',
      'At 00:00 on days 1 and 15 of the month or on Monday',
      '每月 1 日和 15 日或每周一 00:00',
    ],
    [
      '0 0 L * FRIL',
      'At 00:00 on the last day of the month or on the last Friday of the month',
      '每月最后一天或每月最后一个周五 00:00',
    ],
    [
      '0 0 1-7 * */7',
      'At 00:00 on days 1 to 7 of the month, if it is Sunday',
      '每月 1 至 7 日中的周日 00:00',
    ],
    [
      '0 0 */2 * 1',
      'At 00:00 on days 1, 3, 5 … 31 of the month, if it is Monday',
      '每月 1、3、5 … 31 日中的周一 00:00',
    ],
    ['0 0 1-31 * 1', 'At 00:00 every day', '每天 00:00'],
    ['0 9 ? * MON', 'At 09:00 on Monday', '每周一 09:00'],
    ['0 9 * 1 *', 'At 09:00 every day in January', '每年 1 月每天 09:00'],
    ['* * * 6-8 *', 'Every minute from June to August', '每年 6 至 8 月的每分钟'],
    ['0 * * 1,6 *', 'Every hour in January and June', '每年 1 月和 6 月的每小时整点'],
    [
      '0 9 1 */3 *',
      'At 09:00 on day 1 of January, April, July and October',
      '每年 1 月、4 月、7 月和 10 月的 1 日 09:00',
    ],
    [
      '0 0 13 2 5',
      'At 00:00 on day 13 of the month or on Friday, in February',
      '每年 2 月的 13 日或每周五 00:00',
    ],
    ['0 0 L 2 *', 'At 00:00 on the last day of February', '每年 2 月最后一天 00:00'],
    ['0 9 * 1,6 MON', 'At 09:00 on Monday in January and June', '每年 1 月和 6 月的每周一 09:00'],
    ['0 9 * 1 MON#1', 'At 09:00 on the first Monday of January', '每年 1 月的第一个周一 09:00'],
    [
      '0 9 * 6-8 MON-FRI',
      'At 09:00, Monday to Friday from June to August',
      '每年 6 至 8 月的每周一至周五 09:00',
    ],
    [
      '5 4 * JAN,JUN,NOV-DEC SUN',
      'At 04:05 on Sunday in January, June, November and December',
      '每年 1 月、6 月、11 月和 12 月的每周日 04:05',
    ],
    ['0 0 10-20 6-8 *', 'At 00:00 on days 10 to 20 of June to August', '每年 6 至 8 月 10 至 20 日 00:00'],
    ['@yearly', 'At 00:00 on day 1 of January', '每年 1 月 1 日 00:00'],
    ['@monthly', 'At 00:00 on day 1 of the month', '每月 1 日 00:00'],
    ['@weekly', 'At 00:00 on Sunday', '每周日 00:00'],
    ['@daily', 'At 00:00 every day', '每天 00:00'],
    ['@hourly', 'Every hour', '每小时整点'],
    ['* * * * * *', 'Every second', '每秒'],
    ['*/10 * * * * *', 'Every 10 seconds', '每 10 秒'],
    ['*/13 * * * * *', 'At seconds 0, 13, 26, 39 and 52 of every minute', '每分钟第 0、13、26、39、52 秒'],
    ['15 * * * * *', 'Every minute at second 15', '每分钟第 15 秒'],
    ['15 30 * * * *', 'Every hour at minute 30 and second 15', '每小时第 30 分第 15 秒'],
    ['15 0 * * * *', 'Every hour at second 15', '每小时整点第 15 秒'],
    ['15 30 9 * * *', 'At 09:30:15 every day', '每天 09:30:15'],
    ['0 0 9 * * *', 'At 09:00 every day', '每天 09:00'],
    ['59 59 23 31 12 *', 'At 23:59:59 on day 31 of December', '每年 12 月 31 日 23:59:59'],
    ['*/10 * 9-17 * * *', 'Every 10 seconds from 09:00 to 17:59', '每天 09:00 至 17:59 每 10 秒'],
    ['*/10 30 9 * * *', 'Every 10 seconds of the minute 09:30', '每天 09:30 的每 10 秒'],
    ['* 0,30 * * * *', 'Every second of minutes 0 and 30 of every hour', '每小时第 0、30 分的每秒'],
    ['15 */5 * * * *', 'Every 5 minutes at second 15', '每 5 分钟的第 15 秒'],
    [
      '30 0 9-17 * * 1-5',
      'Every hour from 09:00:30 to 17:00:30, Monday to Friday',
      '每周一至周五 09:00:30 至 17:00:30 每小时',
    ],
    ['30 7,22 * * * *', 'At minutes 7 and 22 of every hour, at second 30', '每小时第 7、22 分第 30 秒'],
    ['0 */15 9,17 * * *', 'Every 15 minutes in hours 9 and 17', '每天 9、17 点的每 15 分钟'],
    ['0 9 * * TUE-THU,SAT', 'At 09:00 on Tuesday to Thursday and Saturday', '每周二至周四和周六 09:00'],
    [
      '0 9 15W,31W,L * 1#2,5L',
      'At 09:00 on the workdays (Monday to Friday) nearest to days 15 and 31 and the last day of the month or on the second Monday and the last Friday of the month',
      '每月最接近 15 日和 31 日的工作日（周一至周五）和最后一天或每月第二个周一和最后一个周五 09:00',
    ],
    [
      '0 9 1W 6 *',
      'At 09:00 on the workday (Monday to Friday) nearest to day 1 of June',
      '每年 6 月最接近 1 日的工作日（周一至周五）09:00',
    ],
    [
      '0 9 15 6,7 FRI',
      'At 09:00 on day 15 of the month or on Friday, in June and July',
      '每年 6 月和 7 月的 15 日或每周五 09:00',
    ],
    ['0 9 * 3 1#2', 'At 09:00 on the second Monday of March', '每年 3 月的第二个周一 09:00'],
    [
      '*/20 9-10 */2 6-8 MON-FRI',
      'Every 20 minutes in hours 9 and 10 on days 1, 3, 5 … 31 of the month, if it is Monday to Friday, from June to August',
      '每年 6 至 8 月的 1、3、5 … 31 日中的周一至周五 9、10 点的每 20 分钟',
    ],
    ['*/2 * 9 * * *', 'Every 2 seconds from 09:00 to 09:59', '每天 09:00 至 09:59 每 2 秒'],
    ['0-29 15 * * * *', 'At seconds 0 to 29 of minute 15 of every hour', '每小时第 15 分的第 0 至 29 秒'],
  ])('says %s in both languages', (expression, en, zh) => {
    expect(describe(expression)).toBe(en)
    expect(describe(expression, 'en')).toBe(en)
    expect(describe(expression, 'zh')).toBe(zh)
  })

  it('says the same of the same times, however they are written', () => {
    for (const [one, other] of [
      ['*/15 * * * *', '0,15,30,45 * * * *'],
      ['0 0 * * SUN', '0 0 0 ? * 7'],
      ['@hourly', '0 */1 * * *'],
      ['0 0 * jan-mar *', '0 0 * 1,2,3 *'],
    ] as const) {
      for (const locale of ['en', 'zh'] as const) expect(describe(one, locale)).toBe(describe(other, locale))
    }
  })

  it('finds words for everything', () => {
    const fields = [
      ['0', '15', '*', '*/10', '1,7', '0-20'],
      ['0', '30', '*', '*/5', '*/7', '1,2,5-9'],
      ['*', '9', '*/2', '9-17', '1,5,6'],
      ['*', '13', 'L', '15W,L', '1-7,20', '*/3'],
      ['*', '2', '6-8,12'],
      ['*', '1', 'MON-FRI', '0,3', 'FRIL', '1,2#2', '*/2'],
    ]
    let expressions = ['']
    for (const field of fields) {
      expressions = expressions.flatMap((text) => field.map((one) => (text === '' ? one : `${text} ${one}`)))
    }
    expect(expressions).toHaveLength(22_680)
    const odd = expressions.filter((expression) => {
      const [en, zh] = [describe(expression), describe(expression, 'zh')]
      const isGood = /^[A-Z][A-Za-z0-9 ,:()…]+$/.test(en) && /^[\u4e00-\u9fff0-9 :、…（）]+$/.test(zh)
      return !isGood || /undefined|NaN| {2}| ,|, ?$| $/.test(`${en}|${zh}`)
    })
    expect(odd).toEqual([])
  })

  it('refuses what is no expression and no language', () => {
    expect(() => describe('60 * * * *')).toThrow(expect.objectContaining({ code: 'CRON_INVALID' }))
    expect(() => describe('* * * * *', 'fr' as Locale)).toThrow(
      expect.objectContaining({ code: 'OPTION_INVALID', message: `locale: expected 'en' or 'zh', got "fr"` }),
    )
  })
})
