import { systemClock } from '@neotask/core'
import Sqlite from 'better-sqlite3'
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { AHEAD, ALONE, Checkpointer } from './checkpointer.js'

let folder: string
let path: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'neotask-log-'))
  path = join(folder, 'tasks.db')
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

interface Log {
  log: number
  checkpointed: number
}

function setUp(): {
  database: Sqlite.Database
  checkpointer: Checkpointer
  limits: number[]
  commit: () => void
  log: () => Log
} {
  const database = new Sqlite(path)
  database.pragma('journal_mode = WAL')
  database.pragma('synchronous = NORMAL')
  // So that what moves pages is the thread.
  database.pragma('wal_autocheckpoint = 0')
  database.exec('CREATE TABLE rows (text)')
  const insert = database.prepare('INSERT INTO rows VALUES (?)')
  const limits: number[] = []
  const checkpointer = new Checkpointer(path, systemClock, (pages) => limits.push(pages))
  const commit = (): void => {
    insert.run('x'.repeat(3000))
    checkpointer.committed()
  }
  const log = (): Log => (database.pragma('wal_checkpoint(NOOP)') as Log[])[0] as Log
  return { database, checkpointer, limits, commit, log }
}

/** Commits until the condition holds. */
async function commitUntil(commit: () => void, what: string, holds: () => boolean): Promise<void> {
  const end = performance.now() + 20_000
  while (!holds()) {
    if (performance.now() > end) throw new Error(`not within 20 s: ${what}`)
    for (let i = 0; i < 20; i++) commit()
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

describe('Checkpointer', () => {
  it('tells once that a reader keeps the log from being moved', { timeout: 30_000 }, async () => {
    const { database, checkpointer, limits, commit } = setUp()
    await commitUntil(commit, 'the thread is ready', () => limits.length > 0)
    const reader = new Sqlite(path, { readonly: true })
    reader.exec('BEGIN')
    reader.prepare('SELECT count(*) FROM rows').get()
    const warnings: string[] = []
    const hear = (warning: Error & { code?: string }): void => {
      if (warning.code === 'NEOTASK_SQLITE_LOG') warnings.push(warning.message)
    }
    process.on('warning', hear)
    for (let i = 0; i < 9; i++) {
      database.prepare('INSERT INTO rows VALUES (?)').run('x'.repeat(8 * 1024 * 1024))
    }
    await commitUntil(commit, 'it is told', () => warnings.length > 0)
    let more = 0
    await commitUntil(commit, 'it has looked again', () => ++more > 60)
    await checkpointer.close()
    process.off('warning', hear)
    expect(warnings).toEqual([expect.stringMatching(/^the log of .*tasks\.db has grown to \d+ MiB: /)])
    reader.close()
    database.close()
  })

  it('starts after some commits, tells the connection to leave the log to it, and moves the pages', async () => {
    const { database, checkpointer, limits, commit, log } = setUp()
    commit()
    expect(limits).toEqual([])
    await commitUntil(commit, 'the thread is ready', () => limits.length > 0)
    expect(limits).toEqual([AHEAD])
    await commitUntil(commit, 'it moved pages', () => log().checkpointed >= ALONE)
    await checkpointer.close()
    database.close()
    expect(existsSync(`${path}-wal`)).toBe(false)
    const rows = new Sqlite(path, { readonly: true }).prepare('PRAGMA integrity_check').pluck().get()
    expect(rows).toBe('ok')
  })

  it('keeps a log short that is written without a pause', async () => {
    const { database, checkpointer, limits, commit } = setUp()
    let largest = 0
    let commits = 0
    await commitUntil(
      () => {
        commit()
        commits++
      },
      'many commits',
      () => {
        largest = Math.max(largest, statSync(`${path}-wal`).size)
        return commits > 20_000
      },
    )
    expect(limits).toEqual([AHEAD])
    expect(largest).toBeLessThan(64 * 1024 * 1024)
    await checkpointer.close()
    database.close()
  })

  it('gives the log back to the connection when the thread cannot work', async () => {
    const limits: number[] = []
    const checkpointer = new Checkpointer(join(folder, 'nowhere', 'x.db'), systemClock, (pages) =>
      limits.push(pages),
    )
    for (let i = 0; i < 1000; i++) checkpointer.committed()
    const end = performance.now() + 10_000
    while (limits.length === 0 && performance.now() < end)
      await new Promise((resolve) => setTimeout(resolve, 5))
    expect(limits).toEqual([ALONE])
    expect(checkpointer.empty()).toBe(false)
    await checkpointer.close()
  })

  it('lets go of the file when it is closed while it starts', async () => {
    const { database, checkpointer, commit } = setUp()
    for (let i = 0; i < 300; i++) commit()
    await checkpointer.close()
    database.close()
    expect(existsSync(`${path}-wal`)).toBe(false)
  })
})
