/**
 * `npm run bench -- <suite> [--rounds n] [--only text]`: measures NeoTask beside its peers on this machine, prints a
 * table, and writes `bench/results/<suite>.json`.
 *
 * The subjects of a row take turns, each round in a process of its own, and what counts is the ratio of their medians
 * within one run. A subject that does not deliver every task exactly once fails the run.
 */
import { parseArgs } from 'node:util'
import { measureRow } from './measure.js'
import { printMachine, printRow, writeResults } from './report.js'
import { SUITES, type Row } from './suites.js'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '5' },
    only: { type: 'string' },
    /** Internal: what the process of one measurement is asked for, as `row/subject`. */
    measure: { type: 'string' },
  },
})
const suite = SUITES[positionals[0] ?? '']

if (suite === undefined) fail(`name a suite: ${Object.keys(SUITES).join(', ')}`)
else if (values.measure !== undefined) await measureOne(suite.rows, values.measure)
else {
  const rounds = Number(values.rounds)
  if (!Number.isInteger(rounds) || rounds < 1)
    fail(`--rounds: expected a whole number from 1, got ${values.rounds}`)
  else await runSuite(suite.rows, rounds)
}

async function runSuite(rows: readonly Row[], rounds: number): Promise<void> {
  const name = positionals[0] as string
  const names = rows.map((row) => row.name)
  let path = ''
  printMachine()
  for (const row of rows) {
    if (values.only !== undefined && !row.name.includes(values.only)) continue
    const results = await measureRow(name, row, rounds)
    printRow(results)
    // After each row: a suite may take an hour.
    path = await writeResults(name, results, names)
  }
  if (path === '') fail(`--only: no row of ${name} has ${values.only} in its name`)
  else console.log(`\nwritten to ${path}`)
}

/** The process of one measurement: prints its figure as the last line. */
async function measureOne(rows: readonly Row[], what: string): Promise<void> {
  const slash = what.lastIndexOf('/')
  const subject = rows.find(({ name }) => name === what.slice(0, slash))?.subjects[what.slice(slash + 1)]
  if (subject === undefined) fail(`--measure: there is no ${what}`)
  else console.log(String(await subject()))
}

function fail(message: string): void {
  console.error(`bench: ${message}`)
  process.exitCode = 2
}
