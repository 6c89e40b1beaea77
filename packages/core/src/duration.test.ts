import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { formatDuration, parseDuration } from './duration.js'
import { ValidationError } from './errors.js'

describe('parseDuration', () => {
  it.each([
    [0, 0],
    [250, 250],
    [0.5, 0.5],
    ['0ms', 0],
    ['250ms', 250],
    ['1.5s', 1500],
    ['1.005s', 1005],
    ['5m', 300_000],
    ['1h30m', 5_400_000],
    ['1m500ms', 60_500],
    ['7d', 604_800_000],
    ['2w', 1_209_600_000],
    ['1w1d1h1m1s1ms', 694_861_001],
  ])('reads %j as %d ms', (value, ms) => {
    expect(parseDuration(value, 'delay')).toBe(ms)
  })

  it.each([
    '',
    ' ',
    '5',
    '5 m',
    ' 5m',
    '5M',
    '5min',
    '5y',
    '-5m',
    '+5m',
    '1e3s',
    '.5s',
    '1.s',
    'm',
    '30m1h',
    '5m5m',
    'Infinitys',
    '5m\n',
    -1,
    NaN,
    Infinity,
    2 ** 60,
    '9'.repeat(400) + 's',
    null,
    undefined,
    true,
    {},
    [5],
    5n,
  ])('refuses %o', (value) => {
    expect(() => parseDuration(value, 'delay')).toThrow(ValidationError)
  })

  it('names the option, what it expected and what it got', () => {
    expect(() => parseDuration('5 minutes', 'retry.delay')).toThrow(
      `retry.delay: expected a duration (ms, or text such as '250ms', '5m', '1h30m'), not negative, at most 36525000d, got "5 minutes"`,
    )
  })

  it('keeps to the bounds, and names them', () => {
    const bounds = { min: 1000, max: 60_000 }
    expect(parseDuration('1s', 'ttl', bounds)).toBe(1000)
    expect(parseDuration('1m', 'ttl', bounds)).toBe(60_000)
    expect(() => parseDuration(999, 'ttl', bounds)).toThrow('from 1s to 1m, got 999')
    expect(() => parseDuration('61s', 'ttl', bounds)).toThrow('from 1s to 1m')
    expect(() => parseDuration(0, 'ttl', { min: 1 })).toThrow('of at least 1ms')
    expect(() => parseDuration('2m', 'ttl', { max: 60_000 })).toThrow('of at most 1m')
  })
})

describe('formatDuration', () => {
  it.each([
    [0, '0ms'],
    [0.25, '0.25ms'],
    [250, '250ms'],
    [1500, '1s500ms'],
    [5_400_000, '1h30m'],
    [604_800_000, '7d'],
    [-1000, '-1s'],
    [Infinity, 'Infinity'],
  ])('writes %d as %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text)
  })

  it('writes what parseDuration reads', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e13 }), (ms) => {
        expect(parseDuration(formatDuration(ms), 'any')).toBe(ms)
      }),
    )
  })
})
