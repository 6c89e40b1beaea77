/**
 * A server against the model, at random, through two instances. `NEOTASK_RANDOM_RUNS` asks for more runs, which are others
 * each time; `NEOTASK_RANDOM_SEED` for those of one seed.
 */
import { runRandomSuite } from '@neotask/core/testing'
import { afterAll, beforeAll, test } from 'vitest'
import { openOn, startServer, type TestServer } from './redis-server.test-helper.js'

const { NEOTASK_RANDOM_RUNS: runs, NEOTASK_RANDOM_SEED: seed } = process.env
let server: TestServer
beforeAll(async () => {
  server = await startServer()
})
afterAll(() => server.stop())

test.each([
  [3, 10],
  [2, 3],
] as const)(
  'two instances on one server answer as the model does (RESP%i)',
  { timeout: 3_600_000 },
  async (protocol, few) => {
    await runRandomSuite(() => openOn(server, { protocol }), {
      ...(runs === undefined ? { runs: few, commands: 100, seed: 1 } : { runs: Number(runs) }),
      ...(seed !== undefined && { seed: Number(seed) }),
    })
  },
)
