/**
 * One search of the model by Spin: generated, compiled, run, and its output read.
 *
 * A search says what it found and, apart from that, whether it was exhaustive. It is not when it ran into a bound of
 * depth, memory or time; then nothing follows from what it did not find.
 */
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'

/**
 * @typedef {object} Search
 * @property {string} name
 * @property {boolean} [cycles]  Look for endless runs; otherwise for violated invariants, which is faster.
 * @property {boolean} [small]  Few states: it is found sooner than optimised code would be compiled.
 * @property {Record<string, number | string>} macros
 *
 * @typedef {object} Limits
 * @property {number} memory  MB
 * @property {number} minutes
 *
 * @typedef {object} Outcome
 * @property {number} states
 * @property {number} transitions
 * @property {number} depth
 * @property {number} seconds  Of the search, without the compilation.
 * @property {string} [violated]  The invariant, or `endless run`.
 * @property {string} [incomplete]  The bound that it ran into.
 */

/** A tool is missing or failed; the message says what to do. */
export class SpinError extends Error {}

/** Runs are a few hundred steps deep. */
const MAX_DEPTH = 20_000
const model = join(import.meta.dirname, 'session.pml')

/** The commands that a search needs and that are not here. */
export function missingTools() {
  return Object.entries({ spin: '-V', cc: '--version' })
    .filter(([tool, argument]) => spawnSync(tool, [argument], { stdio: 'ignore' }).status !== 0)
    .map(([tool]) => tool)
}

/** Throws when a search cannot be made here. */
export function checkTools() {
  const missing = missingTools()
  if (missing.length === 0) return
  throw new SpinError(
    `The protocol is checked with Spin and a C compiler, and there is no ${missing.join(' and no ')} here.\n` +
      'Debian, Ubuntu: apt-get install spin gcc libc6-dev; macOS: brew install spin, xcode-select --install.',
  )
}

/**
 * @param {Search} search
 * @param {Limits} limits
 * @param {string} folder  Made, and left with the checker in it and, when something was found, the trail to it.
 * @returns {Promise<Outcome>}
 */
export async function run(search, limits, folder) {
  mkdirSync(folder, { recursive: true })
  const defines = Object.entries(search.macros).map(([name, value]) => `-D${name}=${value}`)
  await tool(folder, 'spin', ['-a', ...defines, model])
  const options = [
    search.cycles ? '-DNP' : '-DSAFETY',
    `-DMEMLIM=${limits.memory}`,
    '-DVECTORSZ=1024',
    '-DNOFAIR',
    // Nearly every step touches what others read, so a reduction finds nothing to leave out.
    '-DNOREDUCE',
    // Small searches keep the check of array bounds.
    ...(search.small ? ['-O0'] : ['-O1', '-DNOBOUNDCHECK']),
  ]
  await tool(folder, 'cc', ['-w', ...options, '-o', 'pan', 'pan.c'])
  const start = performance.now()
  const args = [...(search.cycles ? ['-l'] : []), `-m${MAX_DEPTH}`, '-w20', '-E']
  const { output, timedOut } = await execute(folder, './pan', args, limits.minutes)
  const outcome = read(output, (performance.now() - start) / 1000)
  if (timedOut) outcome.incomplete = `it took more than ${limits.minutes} minutes`
  else if (!/errors: \d/.test(output)) throw new SpinError(`${search.name}: the search broke off\n${output}`)
  return outcome
}

/**
 * What the output of a checker says.
 *
 * @param {string} output
 * @param {number} seconds
 * @returns {Outcome}
 */
function read(output, seconds) {
  const number = (/** @type {RegExp} */ pattern) => Number(pattern.exec(output)?.[1] ?? 0)
  /** @type {Outcome} */
  const outcome = {
    states: number(/([\d.e+]+) states, stored/),
    transitions: number(/([\d.e+]+) transitions/),
    depth: number(/depth reached (\d+)/),
    seconds,
  }
  const [, assertion] = /assertion violated\s+\(?(\w+)/.exec(output) ?? []
  if (assertion) outcome.violated = assertion
  else if (/^pan:\d+: non-progress cycle/m.test(output)) outcome.violated = 'endless run'
  else if (number(/errors: (\d+)/) > 0) outcome.violated = /pan:1: (.*)/.exec(output)?.[1] ?? 'unknown'
  if (/max search depth too small/.test(output))
    outcome.incomplete = `a run is deeper than ${MAX_DEPTH} steps`
  else if (/reached -DMEMLIM|out of memory/.test(output)) outcome.incomplete = 'it needs more memory'
  else if (/Search not completed/.test(output) && !outcome.violated)
    outcome.incomplete = 'it was not completed'
  return outcome
}

/** Runs a tool that has to succeed. */
async function tool(/** @type {string} */ cwd, /** @type {string} */ command, /** @type {string[]} */ args) {
  const { output, code } = await execute(cwd, command, args)
  if (code !== 0 || /\bError:/.test(output)) throw new SpinError(`${command} failed:\n${output}`)
}

/**
 * @param {string} cwd
 * @param {string} command
 * @param {string[]} args
 * @param {number} [minutes]  After which it is stopped.
 * @returns {Promise<{ output: string, code: number | null, timedOut: boolean }>}
 */
function execute(cwd, command, args, minutes) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    let timedOut = false
    const stop = () => {
      timedOut = true
      child.kill()
    }
    const timer = minutes === undefined ? undefined : setTimeout(stop, minutes * 60_000)
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => (output += text))
    }
    child.once('error', reject)
    child.once('close', (code) => {
      clearTimeout(timer)
      resolve({ output, code, timedOut })
    })
  })
}
