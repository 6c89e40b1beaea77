/**
 * A node with a load limit, for the tests of it: runs tasks from one SQLite file, and keeps its event loop busy while it is
 * told to.
 *
 * `node load-worker.js <database>`; it is told `busy`, `rest` and `finish` (its long task), a line each, and tells its
 * events as JSON, a line each.
 */
import { TaskPool } from '@neotask/core'
import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'

/** What a node tells. */
export type Word = { type: 'node.overloaded'; measure: string; value: number } | { type: 'node.recovered' }

const BLOCK = 250

const [database = ''] = process.argv.slice(2)
let isBusy = false
let finish: () => void
const finished = new Promise<void>((resolve) => (finish = resolve))

const pool = new TaskPool({
  storage: `sqlite:${database}`,
  node: 'limited',
  concurrency: 1,
  prefetch: 50,
  sessionTtl: '3s',
  loadLimit: { eventLoopDelay: '60ms' },
  executor: async (name: string) => {
    if (name === 'long') await finished
    return 'limited'
  },
})
const tell = (word: Word): void => void writeSync(1, `${JSON.stringify(word)}\n`)
pool.on('node.overloaded', ({ measure, value }) => tell({ type: 'node.overloaded', measure, value }))
pool.on('node.recovered', () => tell({ type: 'node.recovered' }))

function block(): void {
  if (!isBusy) return
  const end = performance.now() + BLOCK
  while (performance.now() < end);
  setTimeout(block, 1)
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    if (line === 'finish') finish()
    isBusy = line === 'busy' || (isBusy && line !== 'rest')
    block()
  })
  // It does not outlive who started it.
  .on('close', () => process.exit())
await pool.start()
