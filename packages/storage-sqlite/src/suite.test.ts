/** The conformance suite, on a file and in memory. */
import { ManualClock, storageSuite, type Opened } from '@neotask/core/testing'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { sqliteStorage } from './index.js'

describe('a file', () => {
  storageSuite({ test, open: openFile })
})

describe('memory', () => {
  storageSuite({ test, open: openMemory })
})

async function openFile(): Promise<Opened> {
  const clock = new ManualClock()
  const folder = await mkdtemp(join(tmpdir(), 'neotask-suite-'))
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

async function openMemory(): Promise<Opened> {
  const clock = new ManualClock()
  const storage = sqliteStorage({ path: ':memory:', clock })
  return { storage, advance: async (ms) => clock.advance(ms), close: () => storage.close() }
}
