import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { Progress, type ProgressOptions } from './progress.js'

function make(
  options: Partial<Omit<ProgressOptions, 'screen'>> & { columns?: number; isTTY?: boolean } = {},
) {
  const written: string[] = []
  const clock = { ms: 0 }
  const { columns = 80, isTTY = true, ...rest } = options
  const screen = { isTTY, columns, write: (text: string) => written.push(text) }
  const progress = new Progress({ screen, total: 1000, done: 0, env: {}, now: () => clock.ms, ...rest })
  const step = (times: number) => {
    for (let n = 0; n < times; n++) progress.step()
  }
  return {
    progress,
    screen,
    written,
    clock,
    step,
    last: () => stripVTControlCharacters(written.at(-1) ?? ''),
  }
}

describe('on a terminal', () => {
  it('shows count, share, rate and the time left', () => {
    const { progress, clock, step, last } = make()
    step(250)
    clock.ms = 2000
    progress.show()
    expect(last()).toMatch(/^\r█+░+ {2}250 of 1,000 files {2}25 % {2}125 files\/s {2}ETA 6 s$/)
  })

  it('takes what was done before as done, but not as speed', () => {
    const { progress, clock, step, last } = make({ done: 900 })
    step(10)
    clock.ms = 1000
    progress.show()
    expect(last()).toContain('910 of 1,000 files  91 %  10 files/s  ETA 9 s')
  })

  it.each([10, 20, 30, 40, 60, 80, 200])('never fills a terminal of %i columns', (columns) => {
    const { progress, step, last } = make({ columns, total: 10_000_000, done: 9_000_000 })
    step(5)
    progress.show()
    expect(last().length).toBeLessThanOrEqual(columns)
    expect(last()).not.toContain('\n')
  })

  it('takes 80 columns when the terminal does not know its width', () => {
    const { progress, last } = make({ columns: 0 })
    progress.show()
    expect(last()).toHaveLength(80)
  })

  it('follows a terminal that changes its width', () => {
    const { progress, screen, last } = make({ columns: 100 })
    progress.show()
    screen.columns = 24
    progress.show()
    expect(last().length).toBeLessThanOrEqual(24)
  })

  it('is coloured, unless NO_COLOR asks for none', () => {
    const coloured = make()
    coloured.progress.show()
    expect(coloured.written.join('')).toContain('\x1b[2m')
    const plain = make({ env: { NO_COLOR: '1' } })
    plain.progress.show()
    expect(plain.written.join('').replaceAll('\x1b[K', '')).not.toContain('\x1b')
    const empty = make({ env: { NO_COLOR: '' } })
    empty.progress.show()
    expect(empty.written.join('')).toContain('\x1b[2m')
  })

  it('leaves an empty line behind', () => {
    const { progress, written } = make()
    progress.start()
    progress.stop()
    progress.stop()
    expect(written.at(-1)).toBe('\r\x1b[K')
  })

  it('says what it waits for when nothing moves', () => {
    const { progress, clock, step, last } = make({ waitingFor: 'somebody' })
    step(1)
    clock.ms = 1500
    progress.show()
    expect(last()).toContain('waiting for somebody')
    step(1)
    progress.show()
    expect(last()).toContain('files/s')
  })
})

describe('elsewhere', () => {
  it.each([{ isTTY: false }, { env: { TERM: 'dumb' } }])('writes plain lines: %j', (options) => {
    const { progress, written, step } = make(options)
    progress.start()
    step(1000)
    progress.stop()
    expect(written).toEqual(['1,000 of 1,000 files, 100 %, 0 s\n'])
  })
})
