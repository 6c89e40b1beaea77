/**
 * The memory storage against the model, at random. `NEOTASK_RANDOM_RUNS` asks for more runs, which are others each
 * time; `NEOTASK_RANDOM_SEED` for those of one seed.
 */
import { afterEach, describe, expect, it, vi } from 'vitest'
import { memoryStorage } from '../memory-storage.js'
import type { Storage } from '../storage.js'
import type { Opened } from './harness.js'
import { ManualClock } from './manual-clock.js'
import type { Command } from './random-commands.js'
import { RandomFailure, replayRun, runRandomSuite } from './random-suite.js'

/** @param spoil makes a good storage a bad one */
const opener =
  (spoil: (storage: Storage) => void = () => undefined): (() => Promise<Opened>) =>
  async () => {
    const clock = new ManualClock()
    const storage = memoryStorage({ clock })
    spoil(storage)
    return { storage, advance: async (ms) => clock.advance(ms), close: () => storage.close() }
  }

describe('the memory storage', () => {
  const { NEOTASK_RANDOM_RUNS: runs, NEOTASK_RANDOM_SEED: seed } = process.env
  const options = runs === undefined ? { runs: 100, seed: 1 } : { runs: Number(runs) }

  it('answers as the model does, whatever is asked', { timeout: 3_600_000 }, async () => {
    await runRandomSuite(opener(), { ...options, ...(seed !== undefined && { seed: Number(seed) }) })
  })
})

/** Gives a cancelled task's late result to the caller as if it had been accepted. */
function acceptsLateResults(storage: Storage): void {
  const work = storage.session.work.bind(storage.session)
  storage.session.work = async (request) => ({ ...(await work(request)), stale: [] })
}

async function failureOf(call: Promise<unknown>): Promise<RandomFailure> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof RandomFailure)) throw new Error('it has not failed', { cause: error })
  return error
}

describe('a storage that is wrong', () => {
  it('is found out, with few commands, which fail again, and not on a good storage', async () => {
    const open = opener(acceptsLateResults)
    const failure = await failureOf(runRandomSuite(open, { runs: 20, seed: 7 }))
    expect(failure.smallest.length).toBeLessThan(8)
    expect(failure.message).toContain('seed 7, run ')
    expect(failure.message).toContain(JSON.stringify(failure.smallest[0]))
    await expect(replayRun(open, failure.smallest)).rejects.toThrow(/settlement .* is accepted/)
    await replayRun(opener(), failure.smallest)
  })

  it('fails in the same run for the same seed, and in that run alone when asked for it', async () => {
    const open = opener(acceptsLateResults)
    const first = await failureOf(runRandomSuite(open, { runs: 200, seed: 9, commands: 60 }))
    const again = await failureOf(runRandomSuite(open, { seed: 9, run: first.run, commands: 60 }))
    expect([again.run, again.smallest]).toEqual([first.run, first.smallest])
  })

  it('is not made smaller for longer than it may take', async () => {
    const open = opener(acceptsLateResults)
    const failure = await failureOf(runRandomSuite(open, { runs: 20, seed: 7, shrinkFor: 0 }))
    expect(failure.smallest.length).toBeGreaterThan(8)
  })

  const node = { do: 'open', via: 0, q: 0, kinds: 0, ttl: 0, retention: 0, maxReclaims: 0 } as const
  const task = { id: 0, kind: 0, priority: 0, size: 1, nonce: 'own' } as const
  const enqueue: Command = { do: 'enqueue', via: 0, q: 0, units: [[task]] }
  const claim: Command = {
    do: 'work',
    node: 0,
    want: 2,
    renew: false,
    ackTaken: false,
    marks: [],
    reports: [],
    ends: [],
    reply: 'heard',
  }

  it.each<[string, readonly Command[], (storage: Storage) => void, RegExp]>([
    [
      'loses a task',
      [enqueue],
      ({ queue }) => {
        const { enqueue: accept } = queue
        queue.enqueue = async (ref, units, options) => {
          const outcomes = await accept.call(queue, ref, units, options)
          if (ref.queue === 'mail') await queue.remove(ref, ['t0'])
          return outcomes
        }
      },
      /the counts/,
    ],
    [
      'tells nobody of an end',
      [
        { do: 'enqueue', via: 0, q: 0, units: [[{ ...task, watcher: 0 }]] },
        { do: 'operate', via: 0, q: 0, operation: 'cancel', ids: [1], priority: 0, payload: false },
      ],
      ({ notices }) => {
        notices.subscribe = async () => async () => undefined
      },
      /nobody told one of the end of t0/,
    ],
    [
      'wakes nobody',
      [node, claim, enqueue],
      ({ notices }) => {
        notices.subscribe = async () => async () => undefined
      },
      /too few of 1 idle sessions were woken for 1 tasks of kind job/,
    ],
    [
      'gives a task to two sessions',
      [node, enqueue, claim],
      ({ session }) => {
        const work = session.work.bind(session)
        session.work = async (request) => {
          const reply = await work(request)
          return { ...reply, claimed: [...reply.claimed, ...reply.claimed] }
        }
      },
      /t0 is claimed, and is running/,
    ],
    [
      'forgets what a record said',
      [{ do: 'record', via: 0, key: 0, what: 'put', version: 'any' }],
      ({ records }) => {
        records.list = async () => ({ records: [] })
      },
      /the list of records/,
    ],
  ])('is told so when it %s', async (_, commands, spoil, message) => {
    await expect(replayRun(opener(spoil), commands)).rejects.toThrow(message)
    await replayRun(opener(), commands)
  })
})

describe('options', () => {
  it.each([
    [{ runs: 0 }, 'runs'],
    [{ commands: 1.5 }, 'commands'],
    [{ run: -1 }, 'run'],
    [{ seed: NaN }, 'seed'],
  ])('%o are refused by name', async (options, name) => {
    await expect(runRandomSuite(opener(), options)).rejects.toThrow(`${name}: expected`)
  })

  it('give what was run', async () => {
    expect(await runRandomSuite(opener(), { runs: 2, commands: 3, seed: 5 })).toEqual({
      runs: 2,
      commands: 3,
      seed: 5,
    })
  })
})

describe('without fast-check', () => {
  afterEach(() => vi.doUnmock('fast-check'))

  it('says what has to be installed', async () => {
    vi.doMock('fast-check', () => {
      throw new Error('there is none')
    })
    await expect(runRandomSuite(opener())).rejects.toThrow('npm install --save-dev fast-check')
  })
})
