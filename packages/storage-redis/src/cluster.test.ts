/** The conformance suite on a cluster of three masters, by a client of the caller's own. */
import { storageSuite } from '@neotask/core/testing'
import { afterAll, beforeAll, test } from 'vitest'
import { openOnCluster, startCluster, type TestCluster } from './redis-server.test-helper.js'

let cluster: TestCluster
beforeAll(async () => {
  cluster = await startCluster()
})
afterAll(() => cluster.stop())

storageSuite({ test, open: () => openOnCluster(cluster) })
