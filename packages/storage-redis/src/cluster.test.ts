/** The conformance suite and a little of the random one on a cluster of three masters, by clients of the caller's own. */
import { CHANGED } from '@neotask/core'
import { runRandomSuite, storageSuite } from '@neotask/core/testing'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
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

test('whoever listens on a cluster is told that something may have been missed, and hears what comes then', async () => {
  const { storage, close } = await openOnCluster(cluster)
  await storage.open()
  const client = cluster.connect()
  await client.ping()
  const heard: string[] = []
  await storage.notices.subscribe('talk', (message) => heard.push(message))
  for (const node of client.nodes('master')) await node.call('CLIENT', 'KILL', 'TYPE', 'pubsub')
  await vi.waitFor(() => expect(heard).toEqual([CHANGED]), { timeout: 5_000 })
  await storage.notices.publish('talk', 'one')
  await vi.waitFor(() => expect(heard).toEqual([CHANGED, 'one']), { timeout: 5_000 })
  client.disconnect()
  await close()
})
