/**
 * A process for the tests of debounce: submits to one key without a pause until its input ends, and prints the number of
 * each submit that was acknowledged.
 *
 * `node debounce-worker.js <database> <name>`
 */
import { TaskPool } from '@neotask/core'
import { writeSync } from 'node:fs'

/** What is submitted: by whom, and the how manieth of its. */
export interface Save {
  by: string
  n: number
}

const [database = '', by = ''] = process.argv.slice(2)
const pool = new TaskPool<Save, void>({ storage: `sqlite:${database}`, concurrency: 0 })
const input = process.stdin.resume()
for (let n = 1; !input.readableEnded; n++) {
  await pool.submit({ by, n }, { debounce: { key: 'save', wait: 50, maxWait: 200 } })
  writeSync(1, `${n}\n`)
}
await pool.close()
