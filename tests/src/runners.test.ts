/**
 * The test pool under the test runners that applications use: each runs the tests of a small application in
 * `tests/runners`, as a process of its own, on the built packages.
 */
import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'

const folder = join(import.meta.dirname, '..', 'runners')
const { resolve } = createRequire(import.meta.url)

const RUNNERS: Readonly<Record<string, readonly string[]>> = {
  'node:test': ['--test', 'node.test.mjs'],
  vitest: [join(dirname(resolve('vitest/package.json')), 'vitest.mjs'), 'run', '--root', folder],
  jest: ['--experimental-vm-modules', resolve('jest/bin/jest'), '--rootDir', folder],
}

describe.each(Object.entries(RUNNERS))('under %s', (_, args) => {
  it('an application submits, runs and moves time, with fake timers too', { timeout: 60_000 }, async () => {
    const { code, output } = await run(args)
    expect(output).toMatch(/(tests|Tests:?) +3|3 passed/)
    expect({ code, output }).toMatchObject({ code: 0 })
  })
})

/** Without the variables by which vitest tells its own workers what they are. */
function run(args: readonly string[]): Promise<{ code: number | string; output: string }> {
  const { PATH, HOME, SystemRoot } = process.env
  const env = { PATH, HOME, SystemRoot, NO_COLOR: '1', CI: 'true' }
  return new Promise((settle) => {
    execFile(process.execPath, args, { cwd: folder, env, timeout: 55_000 }, (error, stdout, stderr) => {
      settle({
        code: error === null ? 0 : (error.code ?? error.signal ?? 'unknown'),
        output: stdout + stderr,
      })
    })
  })
}
