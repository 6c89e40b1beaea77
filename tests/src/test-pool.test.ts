/** The test pool with handlers in threads beside handlers that are functions. */
import { defineTask } from '@neotask/core'
import { createTestPool } from '@neotask/core/testing'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { expect, it } from 'vitest'
import type { Job } from './thread-handler.js'

const file = pathToFileURL(join(import.meta.dirname, '..', 'dist', 'thread-handler.js'))

/** Whichever of the two ends last, and of both sorts more than there are slots for. */
it.each([
  ['the function', 300, 0],
  ['the thread', 0, 300],
])('drain waits for both sorts: %s takes longer', async (_, hereMs, thereMs) => {
  const here = defineTask({ name: 'here', handler: (ms: number) => sleep(ms, 'here') })
  const there = defineTask<Job, unknown>({ name: 'there', handler: file })
  await using pool = createTestPool({ tasks: [here, there], concurrency: 2, threads: { size: 1 } })
  for (let n = 0; n < 3; n++) {
    await pool.submit(here, hereMs)
    await pool.submit(there, { do: 'sleep', ms: thereMs })
    await pool.submit(there, { do: 'echo' }, { delay: '1m' })
    await pool.submit(here, 0, { delay: '2m' })
  }
  await pool.drain()
  expect(await pool.counts()).toMatchObject({ success: 6, pending: 0, running: 0, scheduled: 6 })
  await pool.advance('1m')
  await pool.drain()
  expect(await pool.counts()).toMatchObject({ success: 9, scheduled: 3 })
  await pool.advance('1m')
  expect(await pool.counts()).toMatchObject({ success: 12, scheduled: 0 })
})
