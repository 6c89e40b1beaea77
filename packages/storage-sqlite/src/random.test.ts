/**
 * A file against the model, at random, with a second instance on the same file. `NEOTASK_RANDOM_RUNS` asks for more
 * runs, which are others each time; `NEOTASK_RANDOM_SEED` for those of one seed.
 */
import { ManualClock, runRandomSuite, type Opened } from '@neotask/core/testing'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'vitest'
import { sqliteStorage } from './index.js'

const { NEOTASK_RANDOM_RUNS: runs, NEOTASK_RANDOM_SEED: seed } = process.env
const options = runs === undefined ? { runs: 20, seed: 1 } : { runs: Number(runs) }

test('two instances on one file answer as the model does', { timeout: 3_600_000 }, async () => {
  await runRandomSuite(openFile, { ...options, ...(seed !== undefined && { seed: Number(seed) }) })
})

async function openFile(): Promise<Opened> {
  const clock = new ManualClock()
  const folder = await mkdtemp(join(tmpdir(), 'neotask-random-'))
  const path = join(folder, 'tasks.db')
  const storage = sqliteStorage({ path, clock })
  return {
    storage,
    advance: async (ms) => clock.advance(ms),
    peer: async () => sqliteStorage({ path, clock }),
    close: async () => {
      await storage.close()
      await rm(folder, { recursive: true })
    },
  }
}
