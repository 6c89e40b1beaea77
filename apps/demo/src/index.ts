/**
 * The demo: one task for each file below a folder, in a pool on one SQLite file or in Redis. Each task's id is made from what the
 * file was, so a second start, after the end or after kill -9, finds what the first one finished and goes on from
 * there. With `--every` it looks at the folder again and again instead, by a schedule in the same place.
 *
 * The report goes to stdout, progress and trouble to stderr.
 */
import { formatDuration, NeoTaskError, openStorage, TaskPool } from '@neotask/core'
import { join } from 'node:path'
import { analyse, type Analysis } from './analyse.js'
import { HELP, readArguments, UsageError, type Arguments } from './arguments.js'
import { formatBytes, formatCount, printable } from './format.js'
import { currentQueue, defaultStorage, filesOf, freshQueue, withoutPassword } from './place.js'
import { Progress } from './progress.js'
import { reportPool, reportResults, Totals } from './report.js'
import { listenForStop } from './stop.js'
import { taskIdOf, walk, type FoundFile } from './walk.js'
import { watch } from './watch.js'

/** The data of a task. */
interface Task {
  /** Relative to the folder that is read. */
  path: string
}

type FilePool = TaskPool<Task, Analysis>

/** Tasks submitted ahead of the one that is worked on. */
const AHEAD = 1000
const MOST_FILES = 10_000_000
const CLOSE_WITHIN = '5s'

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // Whoever read the report has seen enough.
  if (error.code !== 'EPIPE') throw error
})
process.exitCode = await main(process.argv.slice(2))

async function main(args: readonly string[]): Promise<number> {
  try {
    const read = await readArguments(args, {
      // npm changes into the repository and says where it was called.
      base:
        (process.env['npm_lifecycle_event'] === 'start' ? process.env['INIT_CWD'] : undefined) ??
        process.cwd(),
      defaultFolder: join(import.meta.dirname, '..', '..', '..'),
    })
    if (read === 'help') {
      print(HELP)
      return 0
    }
    return await run(read)
  } catch (error) {
    if (!(error instanceof UsageError) && !(error instanceof NeoTaskError)) throw error
    const hint = error instanceof UsageError ? ' (--help tells more)' : ''
    say(`demo: ${error.message}${hint}`)
    return error instanceof UsageError ? 2 : 1
  }
}

async function run({ folder, fresh, concurrency, storage: given, every }: Arguments): Promise<number> {
  const url = given ?? (await defaultStorage(folder))
  const stop = listenForStop()
  const storage = await openStorage(url)
  try {
    const queue = fresh ? await freshQueue(storage, folder) : await currentQueue(storage, folder)
    if (every !== undefined) {
      print(
        `${printable(folder)}, every ${formatDuration(every)}\nThe schedule is in ${printable(withoutPassword(url))}\n`,
      )
      const line = (text: string): void => print(`${text}\n`)
      await watch({ storage, queue, folder, except: filesOf(url), every, stop, print: line, say })
      say(url === 'memory:' ? 'Stopped.' : 'Stopped. The same command goes on with the same slots.')
      return stop.code ?? 0
    }
    const pool: FilePool = new TaskPool({
      storage,
      queue,
      concurrency,
      executor: ({ path }: Task, ctx) => analyse(join(folder, path), ctx.signal),
      autoStart: false,
      // What a killed process held is back after this long and two polls of a second.
      sessionTtl: '4s',
      // Whoever tries kill -9 again and again should not end with a file that is given up.
      maxReclaims: 1000,
      retry: { limit: 3, delay: '200ms' },
      retention: { success: { count: MOST_FILES }, failed: { count: MOST_FILES } },
    })
    const close = (): Promise<unknown> => pool.close({ timeout: CLOSE_WITHIN })
    stop.signal.addEventListener('abort', () => void close())
    try {
      return await work(pool, folder, url, stop.signal)
    } catch (error) {
      if (stop.code === undefined) throw error
      // Whatever failed now did so because the pool is closing.
      await close()
      say(url === 'memory:' ? 'Stopped.' : 'Stopped. The same command goes on from here.')
      return stop.code
    } finally {
      await close()
    }
  } finally {
    stop.end()
    await storage.close()
  }
}

async function work(pool: FilePool, folder: string, url: string, signal: AbortSignal): Promise<number> {
  const { files, unlisted } = await walk(folder, { except: filesOf(url), signal })
  const size = files.reduce((sum, file) => sum + file.size, 0)
  print(`${printable(folder)}: ${formatCount(files.length)} files, ${formatBytes(size)}\n`)
  print(`The tasks are in ${printable(withoutPassword(url))}\n`)

  const totals = new Totals()
  for (const { path, reason } of unlisted)
    totals.fail(`${path}/`, `${reason}: the folder could not be listed`)
  const todo = await takeFinished(pool, files, totals)
  const finished = files.length - todo.length
  if (todo.length === 0) {
    const words =
      files.length === 0
        ? 'There is nothing to do.'
        : 'All of them were finished before; --fresh starts over.'
    print(`${words}\n\n${reportResults(totals)}`)
    return 0
  }
  if (finished > 0)
    print(`${formatCount(finished)} were finished before, ${formatCount(todo.length)} are left\n`)
  const { running } = await pool.counts()
  if (running > 0)
    print(`${formatCount(running)} are held by a process that may be gone; they run again within 7 s\n`)

  const progress = new Progress({
    screen: process.stderr,
    total: files.length,
    done: finished,
    waitingFor: running > 0 ? 'what another process holds' : undefined,
    env: process.env,
    now: () => performance.now(),
  })
  progress.start()
  try {
    await pool.start()
    await forEach(todo, AHEAD, async (file) => {
      await readFile(pool, file, totals)
      progress.step()
    })
  } finally {
    progress.stop()
  }
  print(`\n${reportResults(totals)}\n${reportPool(await pool.getStats())}`)
  return 0
}

/** Adds up what the storage knows already. @returns the files whose tasks have not ended */
async function takeFinished(
  pool: FilePool,
  files: readonly FoundFile[],
  totals: Totals,
): Promise<FoundFile[]> {
  const left = new Map(files.map((file) => [taskIdOf(file), file]))
  for (const state of ['success', 'failed'] as const) {
    let cursor: string | undefined
    do {
      const page = await pool.list({ state, limit: 500, cursor })
      for (const { id, result, error, reason } of page.tasks) {
        const file = left.get(id)
        // Files that are gone or have changed left their tasks behind.
        if (file === undefined) continue
        left.delete(id)
        if (state === 'success') totals.add(file.path, result as Analysis)
        else totals.fail(file.path, error?.message ?? reason ?? state)
      }
      cursor = page.cursor
    } while (cursor !== undefined)
  }
  return [...left.values()]
}

/** Has the pool read the file; a task that is there already, waiting or held by another process, is that task. */
async function readFile(pool: FilePool, file: FoundFile, totals: Totals): Promise<void> {
  try {
    totals.add(file.path, await pool.run({ path: file.path }, { id: taskIdOf(file) }))
  } catch (error) {
    // Without a task's id it is trouble of the pool itself.
    if (
      !(error instanceof NeoTaskError) ||
      error.code === 'POOL_CLOSED' ||
      error.code === 'STORAGE_UNAVAILABLE'
    )
      throw error
    totals.fail(file.path, error.cause instanceof Error ? error.cause.message : error.message)
  }
}

/** Calls `action` for each item, for at most `limit` of them at the same time. Rejects with the first failure. */
async function forEach<T>(
  items: readonly T[],
  limit: number,
  action: (item: T) => Promise<void>,
): Promise<void> {
  const rest = items.values()
  const lane = async (): Promise<void> => {
    for (const item of rest) await action(item)
  }
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane))
}

function print(text: string): void {
  process.stdout.write(text)
}

function say(line: string): void {
  process.stderr.write(`${line}\n`)
}
