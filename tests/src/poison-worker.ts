/**
 * A worker whose handler ends the process when it is told to, on its first line.
 *
 * `node poison-worker.js <database>`
 */
import { TaskPool } from '@neotask/core'

const [database = ''] = process.argv.slice(2)
const pool = new TaskPool({
  storage: `sqlite:${database}`,
  sessionTtl: '1s',
  prefetch: 50,
  executor: (word: string) => {
    if (word === 'exit') process.exit()
    return word.toUpperCase()
  },
})
await pool.start()
