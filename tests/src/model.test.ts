/** The short form of `npm run model`: the protocol holds in the model, and the model sees what would break it. */
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const folder = join(import.meta.dirname, '..', 'model')

interface Run {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

function node(args: readonly string[], path?: string): Promise<Run> {
  const env = path === undefined ? process.env : { ...process.env, PATH: path }
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'], env })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) => resolve({ code, stdout, stderr }))
  })
}

const model = (...args: string[]): Promise<Run> => node([join(folder, 'run.mjs'), ...args])

/** The names of the searches that a line of the output calls `verdict`. */
const named = (stdout: string, verdict: string): string[] =>
  [...stdout.matchAll(new RegExp(`^${verdict} +([\\w-]+):`, 'gm'))].map(([, name = '']) => name)

/** The figures of the searches in a table that do not depend on the machine, by name: the states, and so on. */
function figures(text: string): Record<string, string> {
  const rows = [
    ...text.matchAll(/^\| ([\w-]+) \| (?:invariants|endless runs) \| (.+) \| [\d.]+ s \| none \|$/gm),
  ]
  return Object.fromEntries(rows.map(([, name = '', states = '']) => [name, states]))
}

describe('the model of the protocol', () => {
  it('holds in the short configurations, and the short faults are caught', { timeout: 240_000 }, async () => {
    const { code, stdout, stderr } = await model('--short')
    expect({ code, stderr, failed: named(stdout, 'FAILED') }).toEqual({ code: 0, stderr: '', failed: [] })
    const held = named(stdout, 'ok')
    expect(held).toEqual(expect.arrayContaining(['suspicion', 'probation', 'group', 'waiting', 'endless']))
    expect(held).toEqual(
      expect.arrayContaining(['NOACK', 'TOKATT', 'EARLY', 'NOPROB', 'TWICE', 'SUSLATE', 'NOLEVEL', 'SPIN']),
    )
    const page = readFileSync(join(folder, '..', '..', 'docs', 'reference', 'model.md'), 'utf8')
    const short = figures(stdout)
    expect(Object.keys(short)).toHaveLength(6)
    expect(figures(page)).toMatchObject(short)
  })

  it('fails when a search was not exhaustive', { timeout: 60_000 }, async () => {
    const { code, stdout } = await model('--short', '--memory', '1', 'suspicion')
    expect({ code, failed: named(stdout, 'FAILED') }).toEqual({ code: 1, failed: ['suspicion'] })
    expect(stdout).toContain('not exhaustive: it needs more memory')
  })

  it.each([
    [
      'a configuration that violates an invariant',
      { violated: 'one_structure' },
      false,
      'violates one_structure',
    ],
    ['a configuration that was not searched to the end', { incomplete: 'why' }, false, 'not exhaustive: why'],
    ['a fault that was not caught', {}, true, 'not caught'],
    ['a fault of which the search was not completed', { incomplete: 'why' }, true, 'not exhaustive: why'],
    ['a configuration that holds', {}, false, undefined],
    ['a fault that was caught', { violated: 'one_structure' }, true, undefined],
  ])('judges %s', async (_, outcome, isFault, problem) => {
    const program = `
      import { problemOf } from ${JSON.stringify(join(folder, 'verdict.mjs'))}
      console.log(JSON.stringify({ problem: problemOf(${JSON.stringify(outcome)}, ${isFault}) }))`
    const { stdout } = await node(['--input-type=module', '-e', program])
    expect(JSON.parse(stdout)).toEqual({ problem })
  })

  it('says what to install where Spin is missing', async () => {
    const { code, stderr } = await node([join(folder, 'run.mjs'), '--short'], '/nowhere')
    expect(code).toBe(1)
    expect(stderr).toContain('apt-get install spin gcc libc6-dev')
    expect(stderr).toContain('brew install spin')
  })

  it('names the option that is wrong, and names that nothing has', async () => {
    expect(await model('--jobs', 'many')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^--jobs: expected an integer above 0, got "many"/) as string,
    })
    expect(await model('nothing-like-this')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('nothing-like-this') as string,
    })
  })
})
