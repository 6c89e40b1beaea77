/**
 * Checks the model of the session protocol: every configuration must hold in an exhaustive search, and every rule that
 * is broken on purpose must be found. `npm run model -- [--short] [options] [names]`.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { macrosOf } from './bounds.mjs'
import { configurations } from './configurations.mjs'
import { faults } from './faults.mjs'
import { checkTools, run, SpinError } from './spin.mjs'
import { problemOf } from './verdict.mjs'

/**
 * @typedef {object} Job
 * @property {import('./spin.mjs').Search} search
 * @property {import('./faults.mjs').Fault} [fault]
 *
 * @typedef {Job & { outcome: import('./spin.mjs').Outcome, problem: string | undefined }} Done
 */

const usage = `npm run model -- [--short] [--jobs N] [--memory MB] [--minutes N] [names]
  --short    only the short form, a few seconds
  --jobs     searches at the same time; default: 2, or 1 on a single core
  --memory   MB for all of them together; default: 6000
  --minutes  for one search; default: 10
  names      only configurations and faults whose name contains one of them`

class UsageError extends Error {}

try {
  const options = readOptions(process.argv.slice(2))
  const jobs = jobsOf(options)
  checkTools()
  const done = await runAll(jobs, options)
  report(done)
} catch (error) {
  if (!(error instanceof UsageError || error instanceof SpinError)) throw error
  console.error(error.message)
  process.exitCode = 1
}

function readOptions(/** @type {string[]} */ args) {
  const options = /** @type {const} */ ({
    short: { type: 'boolean', default: false },
    jobs: { type: 'string', default: String(Math.min(2, availableParallelism())) },
    memory: { type: 'string', default: '6000' },
    minutes: { type: 'string', default: '10' },
  })
  try {
    const { values, positionals } = parseArgs({ args, options, allowPositionals: true })
    return {
      short: values.short,
      jobs: positive('jobs', values.jobs),
      memory: positive('memory', values.memory),
      minutes: positive('minutes', values.minutes),
      names: positionals.map((name) => name.toLowerCase()),
    }
  } catch (error) {
    if (error instanceof UsageError || !(error instanceof Error)) throw error
    throw new UsageError(`${error.message}\n${usage}`)
  }
}

function positive(/** @type {string} */ option, /** @type {string} */ text) {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  throw new UsageError(`--${option}: expected an integer above 0, got "${text}"\n${usage}`)
}

/** @returns {Job[]} */
function jobsOf(/** @type {ReturnType<typeof readOptions>} */ { short, names }) {
  const isWanted = (/** @type {{ name: string, short?: boolean }} */ { name, short: isShort }) =>
    (!short || isShort === true) &&
    (names.length === 0 || names.some((part) => name.toLowerCase().includes(part)))
  const jobs = [
    ...configurations.filter(isWanted).map(({ name, cycles = false, bounds }) => ({
      search: { name, cycles, small: short, macros: macrosOf(bounds, 'NONE') },
    })),
    ...faults.filter(isWanted).map((fault) => ({
      search: {
        name: fault.name,
        cycles: fault.cycles ?? false,
        small: fault.large !== true,
        macros: macrosOf(fault.bounds, fault.name),
      },
      fault,
    })),
  ]
  if (jobs.length > 0) return jobs
  throw new UsageError(`no configuration and no fault has a name with ${names.join(' or ')} in it\n${usage}`)
}

/**
 * Runs the jobs, several at once, and prints a line for each as it ends.
 *
 * @param {Job[]} jobs
 * @param {{ jobs: number, memory: number, minutes: number }} options
 * @returns {Promise<Done[]>}
 */
async function runAll(jobs, options) {
  const folder = mkdtempSync(join(tmpdir(), 'neotask-model-'))
  let isKept = false
  process.once('exit', () => {
    if (!isKept) rmSync(folder, { recursive: true, force: true })
  })
  process.once('SIGINT', () => process.exit(130))
  const limits = { memory: Math.floor(options.memory / options.jobs), minutes: options.minutes }
  const waiting = jobs.entries()
  /** @type {Done[]} */
  const done = []
  const lane = async () => {
    for (const [index, job] of waiting) {
      const place = join(folder, job.search.name)
      const outcome = await run(job.search, limits, place)
      const finished = { ...job, outcome, problem: problemOf(outcome, job.fault !== undefined) }
      done[index] = finished
      printLine(finished)
      if (job.fault !== undefined || outcome.violated === undefined) continue
      isKept = true
      console.log(`       see how in ${place}: ./pan -r session.pml.trail`)
    }
  }
  await Promise.all(Array.from({ length: options.jobs }, lane))
  return done
}

function printLine(/** @type {Done} */ { search, outcome, problem, fault }) {
  const verdict = problem === undefined ? 'ok    ' : 'FAILED'
  const found = fault === undefined ? '' : `, caught by ${outcome.violated ?? 'nothing'}`
  const what = problem === undefined ? `${count(outcome.states)} states${found}` : problem
  console.log(`${verdict} ${search.name}: ${what} (${outcome.seconds.toFixed(1)} s)`)
}

/** The tables, and the exit code. */
function report(/** @type {Done[]} */ done) {
  const searched = done.filter(({ fault }) => fault === undefined)
  const broken = done.filter(({ fault }) => fault !== undefined)
  if (searched.length > 0) {
    const rows = searched.map(({ search, outcome, problem }) => [
      search.name,
      search.cycles ? 'endless runs' : 'invariants',
      count(outcome.states),
      count(outcome.transitions),
      count(outcome.depth),
      `${outcome.seconds.toFixed(1)} s`,
      problem ?? 'none',
    ])
    printTable(['Configuration', 'Search for', 'States', 'Transitions', 'Depth', 'Time', 'Errors'], rows)
  }
  if (broken.length > 0) {
    const rows = broken.map(({ fault, outcome, problem }) => [
      fault?.name ?? '',
      `${fault?.about ?? ''}${fault?.gap ? ' (the contract as it stands)' : ''}`,
      problem ?? `\`${outcome.violated}\``,
      count(outcome.states),
      `${outcome.seconds.toFixed(1)} s`,
    ])
    printTable(['Fault', 'What is done wrong', 'Caught by', 'States', 'Time'], rows)
  }
  const states = searched.reduce((sum, { outcome }) => sum + outcome.states, 0)
  const problems = done.filter(({ problem }) => problem !== undefined)
  console.log(
    `\n${searched.length} configurations with ${count(states)} states, ${broken.length} faults; ` +
      (problems.length === 0
        ? 'all hold, and all faults are caught'
        : `FAILED: ${problems.map(({ search }) => search.name).join(', ')}`),
  )
  if (problems.length > 0) process.exitCode = 1
}

/** As Markdown, for `docs/reference/model.md`. */
function printTable(/** @type {string[]} */ head, /** @type {string[][]} */ rows) {
  const line = (/** @type {string[]} */ cells) => `| ${cells.join(' | ')} |`
  console.log(['', line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n'))
}

function count(/** @type {number} */ value) {
  return Math.round(value).toLocaleString('en').replaceAll(',', ' ')
}
