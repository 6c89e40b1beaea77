/**
 * What `--every` does: looks at the folder at an interval, each look a task of one schedule in the storage. Several
 * processes share the looks, and one that starts later goes on with the same slots.
 */
import { defineTask, TaskPool, type Storage } from '@neotask/core'
import { TaskScheduler } from '@neotask/scheduler'
import { formatBytes, formatCount } from './format.js'
import type { Stop } from './stop.js'
import { walk } from './walk.js'

/** What a look finds. */
interface Look {
  files: number
  size: number
}

export interface WatchOptions {
  readonly storage: Storage
  readonly queue: string
  /** The folder to look at, and what to leave out of it. */
  readonly folder: string
  readonly except: readonly string[]
  /** ms between two looks. */
  readonly every: number
  readonly stop: Stop
  /** Prints a line. */
  readonly print: (line: string) => void
  readonly say: (line: string) => void
}

const SCHEDULE = 'look'

/** Looks until it is stopped. */
export async function watch({
  storage,
  queue,
  folder,
  except,
  every,
  stop,
  print,
  say,
}: WatchOptions): Promise<void> {
  const { signal } = stop
  const look = defineTask({
    name: 'look',
    handler: async (_: null, ctx): Promise<Look> => {
      const { files } = await walk(folder, { except: [...except], signal: ctx.signal })
      return { files: files.length, size: files.reduce((sum, file) => sum + file.size, 0) }
    },
  })
  const pool = new TaskPool({
    storage,
    queue: `${queue}.every`,
    tasks: [look],
    autoStart: false,
    sessionTtl: '4s',
  })
  try {
    const scheduler = new TaskScheduler(pool)
    let before: Look | undefined
    pool.on('task.completed', ({ id, result }) => {
      const found = result as Look
      print(`${timeOf(id)}  ${sentence(found, before)}`)
      before = found
    })
    pool.on('task.failed', ({ id, error }) => say(`${timeOf(id)}  ${error.message}`))
    pool.on('pool.error', ({ error }) => say(`demo: ${(error as Error).message}`))
    const known = await scheduler.get(SCHEDULE)
    // A look that takes longer than the interval is not overtaken.
    await scheduler.submitInterval(look, null, every, { id: SCHEDULE, overlap: 'skip', retry: false })
    const { next, runs = 0 } = (await scheduler.get(SCHEDULE)) ?? {}
    if (known !== undefined)
      print(`The schedule is there since ${clock(known.createdAt)}, with ${formatCount(runs)} looks`)
    if (next !== undefined) print(`The next look is at ${clock(next)}; Ctrl-C stops`)
    await pool.start()
    if (!signal.aborted) {
      await new Promise((resolve) => {
        signal.addEventListener('abort', resolve)
      })
    }
  } finally {
    await pool.close({ timeout: '5s' })
  }
}

/** The slot of a look, by its id. */
function timeOf(id: string): string {
  return clock(new Date(Number(id.split('~')[1])))
}

function clock(date: Date): string {
  return date.toTimeString().slice(0, 8)
}

function sentence({ files, size }: Look, before: Look | undefined): string {
  const now = `${formatCount(files)} files, ${formatBytes(size)}`
  if (before === undefined) return now
  const more = files - before.files
  if (more === 0 && size === before.size) return `${now}, as before`
  return `${now}, ${more >= 0 ? `${formatCount(more)} more` : `${formatCount(-more)} fewer`} than before`
}
