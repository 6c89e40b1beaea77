/**
 * `npm run faults`: puts each of the seeded faults into a copy of the memory storage, and prints who found it. An
 * argument narrows to the faults that have it in their names. Fails when one was not found by whom it should be.
 */
import { FaultyCore, type Found } from './fault-search.js'
import { FAULTS, type Fault } from './seeded-faults.js'

const RUNS = 200
const PATIENCE = 300_000

const wanted = process.argv.slice(2).join(' ')
const faults = FAULTS.filter(({ name }) => name.includes(wanted))
const core = new FaultyCore()
const missed: string[] = []
const reasons: string[] = []
try {
  console.log('| Fault | The suite | The random test |\n| --- | --- | --- |')
  for (const fault of faults) {
    const found = await core.search(fault, { runs: RUNS, patience: PATIENCE })
    console.log(`| ${fault.name} | ${suiteCell(fault, found)} | ${randomCell(fault, found)} |`)
  }
} finally {
  core.remove()
}
for (const [index, reason] of reasons.entries()) console.log(`\n[${index + 1}] ${reason}.`)
console.log(`\n${faults.length} faults, ${missed.length} not found`)
for (const miss of missed) console.log(`NOT FOUND by ${miss}`)
if (missed.length > 0 || faults.length === 0) process.exitCode = 1

function suiteCell(fault: Fault, { suite, hangs }: Found): string {
  if (hangs === true) return 'does not end'
  const [first, second, third, ...more] = suite
  if (first === undefined) return unseen('the suite', fault.name, fault.unseenBySuite)
  const shown = [first, second, third].filter((number) => number !== undefined).join(' ')
  return more.length === 0 ? shown : `${shown} and ${more.length} more`
}

function randomCell(fault: Fault, { random, hangs }: Found): string {
  if (hangs === true) return 'does not end'
  if (random === undefined) return unseen('the random test', fault.name, fault.unseenByRandom)
  return `run ${random.run}, ${random.length} commands`
}

function unseen(who: string, name: string, reason: string | undefined): string {
  if (reason === undefined) {
    missed.push(`${who}: ${name}`)
    return 'NOT FOUND'
  }
  reasons.push(reason)
  return `no [${reasons.length}]`
}
