/** What one instance on a file knows of what others do. The rules of notices are tested by the suite. */
import { wakeChannel, type Storage } from '@neotask/core'
import { ManualClock } from '@neotask/core/testing'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { sqliteStorage } from './index.js'

const ref = { tenant: 'acme', queue: 'mail' }
const rule = { age: 1e9, count: 1000 }

let folder: string
let clock: ManualClock
let here: Storage
let there: Storage

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'neotask-notices-'))
  clock = new ManualClock()
  const path = join(folder, 'tasks.db')
  here = sqliteStorage({ path, clock })
  there = sqliteStorage({ path, clock })
  await here.open()
  await there.open()
})
afterEach(async () => {
  await here.close()
  await there.close()
  rmSync(folder, { recursive: true })
})

/** A session of this instance whose claim came back short, and what it hears. */
async function idle(session: string, ttl: number): Promise<string[]> {
  const heard: string[] = []
  await here.session.open(session, {
    ttl,
    node: { id: session, host: 'h', pid: 1, concurrency: 1, queue: ref.queue, kinds: [''] },
    serves: { ...ref, kinds: [''] },
    retention: { success: rule, failed: rule },
    maxReclaims: 3,
  })
  const nothing = { ack: 0, ackTaken: 0, marks: [], reports: [], settlements: [], renew: false }
  await here.session.work({ ...nothing, session, want: 1 })
  await here.notices.subscribe(wakeChannel(session), (message) => heard.push(message))
  return heard
}

test('a session that another instance ended is not woken in place of one that sleeps', async () => {
  const lost = await idle('lost', 1000)
  const asleep = await idle('asleep', 1e9)
  clock.advance(700)
  await there.upkeep.reclaim(10)
  clock.advance(500)
  expect((await there.upkeep.reclaim(10)).condemned).toEqual(['lost'])
  clock.advance(1000)
  for (const heard of [lost, asleep]) heard.length = 0
  const task = { id: 'task', kind: '', payload: '', codec: 'json', priority: 2 }
  await here.queue.enqueue(ref, [task])
  await clock.settle()
  expect([lost, asleep]).toEqual([[], ['']])
})
