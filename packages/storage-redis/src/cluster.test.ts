/** The conformance suite and a little of the random one on a cluster of three masters, by clients of the caller's own. */
import { runRandomSuite, storageSuite } from '@neotask/core/testing'
import { afterAll, beforeAll, test } from 'vitest'
import { openOnCluster, startCluster, type TestCluster } from './redis-server.test-helper.js'

let cluster: TestCluster
beforeAll(async () => {
  cluster = await startCluster()
})
afterAll(() => cluster.stop())

storageSuite({ test, open: () => openOnCluster(cluster) })

test('two instances on a cluster answer as the model does', async () => {
  await runRandomSuite(() => openOnCluster(cluster), { runs: 3, commands: 100, seed: 1 })
})
