/**
 * Three processes that work for one that submits, on one Redis: what they wrote down, the answers and the storage agree
 * that each task was done once.
 *
 * `NEOTASK_CLUSTER_TASKS=200000 npm test -- tests/src/redis-processes` submits that many tasks; without it 5 000.
 */
import { TaskPool } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { Redis } from 'ioredis'
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import type { Done, Work } from './kill-worker.js'
import { redisUrl } from './redis-server.js'
import { readWitness, type Execution } from './witness.js'
import { WorkerProcesses } from './worker-processes.js'

const TASKS = Number(process.env['NEOTASK_CLUSTER_TASKS'] ?? 5_000)
const WORKERS = 3
/** Tasks that are submitted and not finished, at most. */
const OPEN = 2_000

const disposals: (() => Promise<unknown> | void)[] = []

afterEach(async () => {
  for (const dispose of disposals.splice(0).reverse()) await dispose()
})

/** What the server has used so far, in ms of CPU. */
async function serverCpu(control: Redis): Promise<number> {
  const info = await control.info('cpu')
  const seconds = [...info.matchAll(/^used_cpu_(?:sys|user):(\S+)/gm)].map(([, value]) => Number(value))
  return 1000 * seconds.reduce((sum, value) => sum + value, 0)
}

test(
  'the tasks of one process that three others work for are done once each',
  { timeout: 60_000 + 2 * TASKS },
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'neotask-processes-'))
    const log = join(folder, 'log')
    const namespace = `test-${randomBytes(6).toString('hex')}`
    const url = await redisUrl()
    const workers = new WorkerProcesses(`redis:${namespace}:${url}`, log, '25s')
    const control = new Redis(url)
    const storage = redisStorage({ url, namespace })
    await storage.open()
    const producer = new TaskPool<Work, Done>({ storage, concurrency: 0 })
    disposals.push(
      () => rm(folder, { recursive: true }),
      () => control.disconnect(),
      () => storage.close(),
      () => producer.close(),
      () => workers.killAll(),
    )
    const working = Array.from({ length: WORKERS }, () => workers.start(10))
    await Promise.all(working.map(({ ready }) => ready))

    const begun = performance.now()
    const ownCpu = process.cpuUsage()
    const redisCpu = await serverCpu(control)
    const pids = new Map<string, number>()
    let next = 0
    const lane = async (): Promise<void> => {
      while (next < TASKS) {
        const n = next++
        const { square, pid } = await producer.run({ n, ms: 0 }, { id: `task-${n}` })
        if (square !== n * n) throw new Error(`${n} squared is not ${square}`)
        pids.set(`task-${n}`, pid)
      }
    }
    await Promise.all(Array.from({ length: OPEN }, lane))
    const seconds = (performance.now() - begun) / 1000
    const own = process.cpuUsage(ownCpu)
    const redis = (await serverCpu(control)) - redisCpu
    const usages = await Promise.all(working.map((worker) => workers.finish(worker)))

    expect(pids.size).toBe(TASKS)
    expect(await producer.counts()).toMatchObject({
      success: TASKS,
      failed: 0,
      cancelled: 0,
      pending: 0,
      running: 0,
      scheduled: 0,
    })
    const witness = readWitness(log)
    expect(witness.size).toBe(TASKS)
    const shares = new Map(working.map(({ pid }) => [pid, 0]))
    const wrong: Execution[][] = []
    for (const [id, executions] of witness) {
      const [execution] = executions
      const isOnce = executions.length === 1 && execution?.accepted === true && !execution.refused
      if (isOnce && execution.pid === pids.get(id))
        shares.set(execution.pid, (shares.get(execution.pid) ?? 0) + 1)
      else wrong.push(executions)
    }
    expect(wrong).toEqual([])
    for (const share of shares.values()) expect(share).toBeGreaterThan(TASKS / WORKERS / 10)

    const load = (ms: number): string => `${(ms / seconds / 10).toFixed(0)} %`
    console.log(
      `${TASKS} tasks in ${seconds.toFixed(1)} s, ${(TASKS / seconds).toFixed(0)} tasks/s; CPU: ` +
        `producer ${load((own.user + own.system) / 1000)}, redis-server ${load(redis)}, workers ` +
        working
          .map(({ pid }, index) => `${load(usages[index]?.cpu ?? 0)} with ${shares.get(pid)} tasks`)
          .join(', '),
    )
  },
)
