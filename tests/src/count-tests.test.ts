import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'

const root = join(import.meta.dirname, '../..')
let folder: string

beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'neotask-count-'))))
afterEach(() => rmSync(folder, { recursive: true }))

/** Runs the test files in a vitest of its own: the last line printed, and the exit code. */
function run(files: Record<string, string>) {
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const reporter = `--reporter=${join(root, 'scripts/count-tests.mjs')}`
  const options = { cwd: folder, encoding: 'utf8' } as const
  const { status, stdout } = spawnSync(process.execPath, [vitest, 'run', '--globals', reporter], options)
  return { status, lastLine: stdout.trimEnd().split('\n').at(-1) }
}

const passing = `test('a', () => {}); test.skip('b', () => {})`

test('tests that pass are counted over all files', () => {
  expect(run({ 'a.test.js': passing, 'b.test.js': passing })).toEqual({
    status: 0,
    lastLine: 'tests: 2 passed, 0 failed, 2 skipped',
  })
})

test('a failed test, a file that does not load and an unhandled rejection fail the run', () => {
  const files = {
    'a.test.js': passing,
    'b.test.js': `test('c', () => { throw new Error('expected') })`,
    'c.test.js': `import './nowhere.js'`,
    'd.test.js': `test('d', () => { Promise.reject(new Error('expected')) })`,
  }
  expect(run(files)).toEqual({ status: 1, lastLine: 'tests: 2 passed, 3 failed, 1 skipped' })
})

test('a run in which no test ran fails', () => {
  expect(run({ 'a.test.js': `test.skip('a', () => {})` })).toEqual({
    status: 1,
    lastLine: 'tests: 0 passed, 0 failed, 1 skipped',
  })
})
