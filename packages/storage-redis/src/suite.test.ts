/** The conformance suite on one server. */
import { storageSuite } from '@neotask/core/testing'
import { afterAll, beforeAll, test } from 'vitest'
import { openOn, startServer, type TestServer } from './redis-server.test-helper.js'

let server: TestServer
beforeAll(async () => {
  server = await startServer()
})
afterAll(() => server.stop())

storageSuite({ test, open: () => openOn(server) })
