/**
 * The published random test: a storage and a plain model of one are asked the same, at random, and must answer the
 * same.
 *
 * It is for whoever writes a storage, beside `storageSuite`: the suite says what each rule means, this finds what
 * rules do together. It needs `fast-check`, an optional peer of this package, which chooses the commands.
 */
import { systemClock } from '../clock.js'
import { optionError } from '../errors.js'
import { commandArbitrary } from './command-arbitrary.js'
import type { Opened } from './harness.js'
import type { Command } from './random-commands.js'
import { randomList, shrink, type Trial } from './random-list.js'
import { CommandError, executeRun } from './random-run.js'

export interface RandomSuiteOptions {
  /** How many runs, each on a fresh storage. Default: 100. */
  readonly runs?: number
  /** How many commands in a run. Default: 200. */
  readonly commands?: number
  /** What the runs are chosen by: the same seed gives the same runs. Default: another one each time. */
  readonly seed?: number
  /** Only the run with this number, from 1, as a {@link RandomFailure} names it. Default: all. */
  readonly run?: number
  /** The longest time in ms that a failing run is made smaller. Default: 60 000. */
  readonly shrinkFor?: number
}

export interface RandomReport {
  readonly runs: number
  readonly commands: number
  readonly seed: number
}

/** A storage and the model did not agree. The message tells about what, how to see it again, and the smallest case. */
export class RandomFailure extends Error {
  readonly seed: number
  /** Which run failed, from 1. */
  readonly run: number
  /** The smallest list of commands that was found to fail. Give it to {@link replayRun}. */
  readonly smallest: readonly Command[]

  constructor({ seed, run, smallest }: Pick<RandomFailure, 'seed' | 'run' | 'smallest'>, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    const list = smallest.map((command) => JSON.stringify(command)).join(',\n')
    super(`seed ${seed}, run ${run}: ${reason}\n${smallest.length} commands are enough:\n${list}`, {
      cause,
    })
    this.name = 'RandomFailure'
    this.seed = seed
    this.run = run
    this.smallest = smallest
  }
}

/**
 * Runs random commands on a storage and on a model of one.
 *
 * @param open gives a fresh, empty storage for each run, as for `storageSuite`. Its clock must stand still but for
 * `advance`, since the model compares times to the ms. With a `peer`, some of the calls go through that.
 * @throws RandomFailure
 */
export async function runRandomSuite(
  open: () => Promise<Opened>,
  options: RandomSuiteOptions = {},
): Promise<RandomReport> {
  const { runs = 100, commands = 200, run, shrinkFor = 60_000 } = options
  const seed = options.seed ?? Math.floor(Math.random() * 2 ** 31)
  for (const [name, value] of Object.entries({ runs, commands, run: run ?? 1 }))
    if (!(Number.isInteger(value) && value >= 1)) throw optionError(name, 'an integer of at least 1', value)
  if (!Number.isInteger(seed)) throw optionError('seed', 'an integer', seed)
  const fc = await import('fast-check').catch((cause: unknown) => {
    throw new Error('runRandomSuite needs the package fast-check: npm install --save-dev fast-check', {
      cause,
    })
  })
  const element = commandArbitrary(fc)
  const lists = randomList(fc, element, commands)
  const attempt = async (list: readonly Command[]): Promise<Trial> => {
    try {
      await executeRun(open, list)
      return undefined
    } catch (error) {
      return { error, used: error instanceof CommandError ? error.index + 1 : list.length }
    }
  }
  let first: Trial
  const details = await fc.check(
    fc.asyncProperty(lists.arbitrary, async (list) => (first = await attempt(list)) === undefined),
    // fast-check counts runs from 0.
    {
      seed,
      numRuns: runs,
      endOnFailure: true,
      ...(run !== undefined && { path: String(run - 1), numRuns: 1 }),
    },
  )
  if (!details.failed) return { runs: details.numRuns, commands, seed }
  const list = details.counterexample?.[0] ?? []
  const failure = await attempt(list)
  if (failure === undefined)
    throw new Error(`seed ${seed}: the same commands failed, and then did not`, {
      cause: first?.error,
    })
  const until = systemClock.monotonic() + shrinkFor
  const mayGoOn = (): boolean => systemClock.monotonic() < until
  const { smallest, error } = await shrink(lists.elementsOf(list), failure, { element, attempt, mayGoOn })
  throw new RandomFailure({ seed, run: run ?? details.numRuns, smallest }, error)
}

/** Carries one list of commands out, such as the smallest that failed. Rejects when storage and model differ. */
export function replayRun(open: () => Promise<Opened>, commands: readonly Command[]): Promise<void> {
  return executeRun(open, commands)
}
