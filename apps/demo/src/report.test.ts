import { describe, expect, it } from 'vitest'
import { reportResults, Totals } from './report.js'

const analysis = (bytes: number) => ({
  sha256: 'f'.repeat(64),
  bytes,
  lines: 1,
  words: 2,
  gzipped: bytes / 2,
})

describe('reportResults', () => {
  it('adds up by extension, the largest first, and says what the total is', () => {
    const totals = new Totals()
    totals.add('a/b.ts', analysis(1000))
    totals.add('a.TS', analysis(500))
    totals.add('README', analysis(4000))
    totals.add('.gitignore', analysis(0))
    const report = reportResults(totals)
    expect(report).toMatch(/\.ts +2 +1\.5 kB +2 +4 +50\.0 %/)
    expect(report).toMatch(/\(none\) +2 +4\.0 kB +2 +4 +50\.0 %/)
    expect(report).toMatch(/total +4 +5\.5 kB +4 +8 +50\.0 %/)
    expect(report.indexOf('(none)')).toBeLessThan(report.indexOf('.ts'))
    expect(report).not.toContain('Could not be read')
  })

  it('keeps the largest files, and the extensions that matter', () => {
    const totals = new Totals()
    for (let n = 0; n < 40; n++) totals.add(`file.x${n}`, analysis(n))
    expect(totals.largest.map(({ path }) => path)).toEqual([
      'file.x39',
      'file.x38',
      'file.x37',
      'file.x36',
      'file.x35',
    ])
    expect(reportResults(totals)).toMatch(/25 others +25 /)
  })

  it('lists what could not be read, up to a bound', () => {
    const totals = new Totals()
    for (let n = 0; n < 150; n++) totals.fail(`gone-${n}\x1b`, 'ENOENT: it vanished')
    const report = reportResults(totals)
    expect(report).toContain('Could not be read: 150\n')
    expect(report).toContain('gone-0\\x1b   ENOENT: it vanished\n')
    expect(report).toContain('and 50 more')
    expect(report).not.toContain('gone-100')
  })
})
