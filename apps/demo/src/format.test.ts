import { describe, expect, it } from 'vitest'
import { formatBytes, formatMs, formatShare, formatSpan, printable, table } from './format.js'

describe('formats', () => {
  it.each([
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1.0 kB'],
    [1_550_000, '1.6 MB'],
    [999_960, '1.0 MB'],
    [12_300_000_000, '12.3 GB'],
  ])('%i bytes as %s', (bytes, text) => expect(formatBytes(bytes)).toBe(text))

  it.each([
    [0, '0 s'],
    [0.2, '1 s'],
    [59, '59 s'],
    [60, '1 min 00 s'],
    [185, '3 min 05 s'],
    [7620, '2 h 07 min'],
  ])('%d seconds as %s', (seconds, text) => expect(formatSpan(seconds)).toBe(text))

  it('times and shares', () => {
    expect([0.123, 34.4, 5600].map(formatMs)).toEqual(['0.12 ms', '34 ms', '5.6 s'])
    expect([formatShare(1, 4), formatShare(20, 0)]).toEqual(['25.0 %', '-'])
  })
})

describe('printable', () => {
  it('leaves names alone and shows as codes what would move the cursor or turn letters round', () => {
    expect(printable('ü 空 😀.ts')).toBe('ü 空 😀.ts')
    expect(printable('a\nb\x1b[2Jc\u202ed')).toBe('a\\x0ab\\x1b[2Jc\\u{202e}d')
  })
})

describe('table', () => {
  it('aligns names left, numbers right, and leaves free columns as they are', () => {
    expect(
      table(
        ['', 'n', 'path'],
        [
          ['a', '1', 'x'],
          ['bbb', '22', 'a long one'],
        ],
        1,
      ),
    ).toBe(['         n   path', '  a      1   x', '  bbb   22   a long one', ''].join('\n'))
  })
})
