/**
 * Runs tasks of every sort for long, and watches what the process keeps: heap after a collection, memory of the
 * process, handles, open files. Every result is checked. Fails when the heap grows, or when a task is lost.
 *
 * `npm run soak -- memory --minutes 30`, or `sqlite`
 */
import {
  defineTask,
  NeoTaskError,
  TaskPool,
  type SubmitOptions,
  type TaskContext,
  type TaskId,
} from '@neotask/core'
import { readdirSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Job as ThreadJob } from './thread-handler.js'

const SORTS = [
  'plain',
  'retry',
  'delay',
  'fail',
  'cancel',
  'timeout',
  'report',
  'parent',
  'debounce',
  'thread',
] as const
type Sort = (typeof SORTS)[number]

interface Job {
  sort: Sort
  n: number
  text: string
}

interface Sample {
  readonly minutes: number
  /** Bytes. */
  readonly heap: number
  readonly rss: number
  readonly handles: number
  readonly files: number
  readonly tasks: number
}

const CODES: Partial<Record<Sort, string>> = {
  fail: 'TASK_FAILED',
  timeout: 'TASK_FAILED',
  cancel: 'TASK_CANCELLED',
}
/** Callers that submit and wait, one task after another, and their pause in ms. */
const LANES = 40
const PAUSE = 50
/** Bytes a minute that the heap may grow by: far below a byte for each task. */
const MOST_GROWTH = 50_000

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { minutes: { type: 'string', default: '30' } },
})
const storageName = positionals[0] ?? 'memory'
const minutes = Number(values.minutes)
if ((storageName !== 'memory' && storageName !== 'sqlite') || !(minutes > 0)) {
  throw new Error('usage: soak memory|sqlite [--minutes n]')
}

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
const folder = await mkdtemp(join(tmpdir(), 'neotask-soak-'))
const inThread = defineTask<ThreadJob, unknown>({
  name: 'in-thread',
  handler: new URL('thread-handler.js', import.meta.url),
})
const pool = new TaskPool({
  storage: storageName === 'memory' ? 'memory:' : `sqlite:${join(folder, 'tasks.db')}`,
  concurrency: 20,
  threads: { size: 2 },
  tasks: [inThread],
  retry: { limit: 1, delay: 1, jitter: 'none' },
  retention: { success: { age: '30s', count: 2000 }, failed: { age: '30s', count: 2000 } },
  executor: work,
})

async function work({ sort, n }: Job, ctx: TaskContext): Promise<number> {
  if (sort === 'fail' || (sort === 'retry' && ctx.attempt === 1)) throw new Error('as it was asked to')
  if (sort === 'timeout' || sort === 'cancel') {
    await sleep(60_000, undefined, { signal: ctx.signal })
  }
  if (sort === 'report') {
    ctx.progress({ n })
    ctx.log('half way', { n })
    await ctx.checkpoint({ n })
  }
  await Promise.resolve()
  return n * 2
}

/** Each sort in its own way; the id is that of the task whose result counts. */
async function submit(job: Job, options: SubmitOptions): Promise<TaskId> {
  const { sort, n } = job
  if (sort === 'thread') return await pool.submit(inThread, { do: 'echo', value: n * 2 }, options)
  if (sort !== 'debounce') return await pool.submit(job, options)
  const debounce = { key: `document-${n}`, wait: 20 }
  for (let older = 1; older <= 3; older++) await pool.submit({ ...job, n: -older }, { ...options, debounce })
  return await pool.submit(job, { ...options, debounce })
}

let done = 0
let next = 0
async function once(): Promise<void> {
  const n = next++
  const sort = SORTS[n % SORTS.length] as Sort
  const job = { sort, n, text: 'x'.repeat(n % 1000) }
  const options = {
    priority: n % 4,
    ...(sort === 'delay' && { delay: n % 500 }),
    ...(sort === 'timeout' && { timeout: 20, retry: { limit: 0 } }),
    ...(sort === 'parent' && { after: await pool.submit({ sort: 'plain', n, text: '' }) }),
  }
  const id = await submit(job, options)
  if (sort === 'cancel') await pool.cancel(id)
  const expected = CODES[sort] ?? n * 2
  const outcome = await pool.waitForResult(id, { timeout: '60s' }).catch((error: unknown) => {
    if (error instanceof NeoTaskError) return error.code
    throw error
  })
  if (outcome !== expected) throw new Error(`task ${n} (${sort}) gave ${String(outcome)}`)
  done++
}

const start = performance.now()
const elapsed = (): number => (performance.now() - start) / 60_000
async function lane(): Promise<void> {
  while (elapsed() < minutes) {
    await once()
    await sleep(PAUSE)
  }
}

const openFiles = (): number => {
  try {
    return readdirSync('/proc/self/fd').length
  } catch {
    return 0
  }
}

const mib = (bytes: number): string => (bytes / 1024 / 1024).toFixed(2)
const samples: Sample[] = []
function sample(): void {
  collect()
  const { heapUsed: heap, rss } = process.memoryUsage()
  const handles = process.getActiveResourcesInfo().filter((name) => name !== 'Timeout').length
  const taken = { minutes: elapsed(), heap, rss, handles, files: openFiles(), tasks: done }
  samples.push(taken)
  const { files, tasks } = taken
  console.log(
    `${taken.minutes.toFixed(1)} min: ${tasks} tasks, heap ${mib(heap)} MiB, process ${mib(rss)} MiB, ` +
      `${handles} handles, ${files} files`,
  )
}

/** The slope of the straight line closest to the samples, by least squares, per minute. */
function slope(of: readonly Sample[], value: (sample: Sample) => number): number {
  const mean = (read: (sample: Sample) => number): number =>
    of.reduce((sum, each) => sum + read(each), 0) / of.length
  const [x, y] = [mean((each) => each.minutes), mean(value)]
  const spread = of.reduce((sum, each) => sum + (each.minutes - x) ** 2, 0)
  return of.reduce((sum, each) => sum + (each.minutes - x) * (value(each) - y), 0) / spread
}

await pool.start()
const timer = setInterval(sample, Math.min(30_000, minutes * 6000))
await Promise.all(Array.from({ length: LANES }, lane))
clearInterval(timer)
sample()
const { pending, running, scheduled, blocked } = await pool.counts()
await pool.close()
await rm(folder, { recursive: true })

// The first third fills the retention and the caches.
const settled = samples.filter((each) => each.minutes >= minutes / 3)
const growth = slope(settled, ({ heap }) => heap)
const left = pending + running + scheduled + blocked
console.log(
  `${done} tasks in ${elapsed().toFixed(1)} min on ${storageName}; after the first third the heap grows by ` +
    `${(growth / 1024).toFixed(1)} KiB a minute, the process by ${(slope(settled, ({ rss }) => rss) / 1024).toFixed(1)} KiB, ` +
    `handles by ${slope(settled, ({ handles }) => handles).toFixed(3)}, files by ${slope(settled, ({ files }) => files).toFixed(3)}; ` +
    `${left} tasks are left`,
)
if (left > 0 || (minutes >= 5 && growth > MOST_GROWTH)) process.exitCode = 1
