/**
 * Runs the contract suite and the random test on the memory storage of a copy of the core, and writes what they found.
 * Arguments: the folder of the built copy, and how many random runs there are at most.
 */
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Found } from './fault-search.js'

type Core = typeof import('@neotask/core')
type Testing = typeof import('@neotask/core/testing')

const [, , folder = '', runs = '1'] = process.argv
/** The longest time in ms of one case: a fault may keep it from ending. */
const PATIENCE = 10_000
const SEED = 1

const load = (name: string): Promise<unknown> => import(pathToFileURL(join(folder, name)).href)
const { memoryStorage } = (await load('index.js')) as Core
const { ManualClock, RandomFailure, runRandomSuite, storageSuite } = (await load(
  'testing/index.js',
)) as Testing

const open: Parameters<Testing['runRandomSuite']>[0] = async () => {
  const clock = new ManualClock()
  const storage = memoryStorage({ clock })
  return { storage, advance: (ms) => clock.advanceAsync(ms), close: () => storage.close() }
}

const cases: { number: string; body: () => Promise<void> }[] = []
storageSuite({ open, test: (name, body) => cases.push({ number: name.split(' ')[0] ?? '', body }) })
const suite: string[] = []
for (const { number, body } of cases) {
  const late = new Promise<never>((_resolve, reject) => {
    setTimeout(() => reject(new Error('it does not end')), PATIENCE).unref()
  })
  await Promise.race([body(), late]).catch(() => suite.push(number))
}

const random = await runRandomSuite(open, { runs: Number(runs), seed: SEED, shrinkFor: 20_000 }).then(
  () => undefined,
  (error: unknown) => {
    if (!(error instanceof RandomFailure)) throw error
    return { run: error.run, length: error.smallest.length }
  },
)
const found: Found = { suite, random }
process.stdout.write(JSON.stringify(found), () => process.exit(0))
