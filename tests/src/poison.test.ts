/** A task that takes its process with it, among others that were claimed ahead with it. */
import { TaskPool } from '@neotask/core'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'

const program = join(import.meta.dirname, '..', 'dist', 'poison-worker.js')

test(
  'is a dead letter after a few crashes, and all that it took along succeeds',
  { timeout: 60_000 },
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'neotask-poison-'))
    const database = join(folder, 'tasks.db')
    const pool = new TaskPool<string, string>({ storage: `sqlite:${database}`, concurrency: 0 })
    const before = await pool.submitBatch(Array.from({ length: 25 }, (_, n) => ({ data: `before ${n}` })))
    const poison = await pool.submit('exit')
    const after = await pool.submitBatch(Array.from({ length: 25 }, (_, n) => ({ data: `after ${n}` })))

    let crashes = 0
    let isOver = false
    const supervise = async (): Promise<void> => {
      while (!isOver) {
        const child = spawn(process.execPath, [program, database], { stdio: ['ignore', 'ignore', 'inherit'] })
        const stop = setInterval(() => isOver && child.kill('SIGKILL'), 20)
        const [code] = (await once(child, 'exit')) as [number | null]
        clearInterval(stop)
        if (code !== null) crashes++
      }
    }
    const supervised = supervise()

    await expect(pool.waitForResult(poison)).rejects.toMatchObject({ code: 'POISON' })
    const results = await pool.waitAll([...before, ...after])
    isOver = true
    await supervised

    expect(results).toEqual([
      ...Array.from({ length: 25 }, (_, n) => `BEFORE ${n}`),
      ...Array.from({ length: 25 }, (_, n) => `AFTER ${n}`),
    ])
    console.info(`${crashes} crashes until the task was a dead letter`)
    expect(crashes).toBeGreaterThan(1)
    expect(crashes).toBeLessThanOrEqual(5)
    const { failed, success } = await pool.counts()
    expect([failed, success]).toEqual([1, 50])
    await pool.close()
    await rm(folder, { recursive: true })
  },
)
