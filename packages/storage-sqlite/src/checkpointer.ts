/**
 * Moves the log into the database file from a thread of its own.
 *
 * A checkpoint waits for the disk (20 ms and more where a flush is slow). On the connection that commits, that wait
 * stops the event loop about once in a thousand pages; on another thread nobody notices. It starts when there is
 * something to gain, after a number of commits. If it cannot run, or falls behind, the committing connection does
 * the work itself as before: at {@link AHEAD} pages instead of {@link ALONE}.
 */
import type { Clock, Timer } from '@neotask/core'
import { createRequire } from 'node:module'
import { Worker } from 'node:worker_threads'

/** Pages in the log at which a connection without a checkpointer checkpoints itself. */
export const ALONE = 1000
/** The same with one: 32 MiB, which is reached only when the thread falls behind. */
export const AHEAD = 8192
/** Bytes of a log that are told; the file keeps half of them when it is begun anew. */
export const LARGE_LOG: number = 64 * 1024 * 1024
/** Commits before a thread is worth its price. */
const WORTH_WHILE = 200
/** ms between looks at the log while something is written. */
const PAUSE = 100

// As text, because a file of its own would have one name in the sources and another when built. A look costs no
// wait: NOOP only counts. PASSIVE disturbs nobody; RESTART makes the next writer begin the log anew, which a log
// that is written without a pause needs now and then.
const THREAD = `
const { parentPort, workerData } = require('node:worker_threads')
const Sqlite = require(workerData.module)
const db = new Sqlite(workerData.path, { fileMustExist: true, timeout: 5 })
const pageSize = db.pragma('page_size', { simple: true })
const checkpoint = (mode) => db.pragma('wal_checkpoint(' + mode + ')')[0]
parentPort.on('message', (message) => {
  if (message === 'close') {
    db.close()
    parentPort.close()
    return
  }
  let bytes = 0
  try {
    if (message === 'empty') checkpoint('TRUNCATE')
    else {
      const { log, checkpointed } = checkpoint('NOOP')
      bytes = log * pageSize
      if (log - checkpointed >= workerData.enough) checkpoint('PASSIVE')
      if (log >= workerData.long) checkpoint('RESTART')
    }
  } catch {
    // Somebody is writing, or reads an old state: the next look will do.
  }
  parentPort.postMessage(bytes)
})
parentPort.postMessage('ready')
`

export class Checkpointer {
  readonly #path: string
  readonly #clock: Clock
  /** Sets the pages at which the committing connection checkpoints itself. */
  readonly #setLimit: (pages: number) => void
  #commits = 0
  #worker: Worker | undefined
  #state: 'new' | 'starting' | 'idle' | 'looking' | 'closed' = 'new'
  #timer: Timer | undefined
  /** Whether a large log was told, since it was last small. */
  #warned = false

  constructor(path: string, clock: Clock, setLimit: (pages: number) => void) {
    this.#path = path
    this.#clock = clock
    this.#setLimit = setLimit
  }

  /** A transaction was committed. */
  committed(): void {
    if (this.#state === 'new') {
      if (++this.#commits >= WORTH_WHILE) this.#start()
    } else if (this.#state === 'idle') {
      this.#timer ??= this.#clock.after(PAUSE, () => {
        this.#timer = undefined
        this.#ask('look')
      })
    }
  }

  /** Nothing has been written for a while. @returns whether the thread empties the log */
  empty(): boolean {
    return this.#ask('empty')
  }

  /** Resolves when the thread has let go of the file. */
  async close(): Promise<void> {
    this.#timer?.cancel()
    const worker = this.#worker
    this.#state = 'closed'
    this.#worker = undefined
    if (worker === undefined) return
    const gone = new Promise<void>((resolve) =>
      worker.once('exit', () => {
        resolve()
      }),
    )
    // Somebody waits for it now, so it holds the process.
    worker.ref()
    worker.postMessage('close')
    await gone
  }

  #ask(what: 'look' | 'empty'): boolean {
    if (this.#state !== 'idle' || this.#worker === undefined) return false
    this.#state = 'looking'
    this.#worker.postMessage(what)
    return true
  }

  #start(): void {
    this.#state = 'starting'
    const module = createRequire(import.meta.url).resolve('better-sqlite3')
    const workerData = { module, path: this.#path, enough: ALONE, long: AHEAD / 2 }
    const worker = new Worker(THREAD, { eval: true, workerData })
    worker.unref()
    worker.on('message', (message: unknown) => {
      if (this.#state === 'closed') return
      if (message === 'ready') this.#setLimit(AHEAD)
      else this.#warn(message as number)
      this.#state = 'idle'
    })
    worker.on('error', () => this.#giveUp())
    worker.on('exit', () => this.#giveUp())
    this.#worker = worker
  }

  /** A log beyond its bound means a reader that does not end, and nobody else would say so. */
  #warn(bytes: number): void {
    if (bytes < LARGE_LOG / 2) this.#warned = false
    if (bytes < LARGE_LOG || this.#warned) return
    this.#warned = true
    const size = Math.round(bytes / 1024 / 1024)
    process.emitWarning(
      `the log of ${this.#path} has grown to ${size} MiB: somebody has been reading an old state of it for long`,
      { type: 'NeoTaskWarning', code: 'NEOTASK_SQLITE_LOG' },
    )
  }

  /** The thread died: the connection is alone again. */
  #giveUp(): void {
    if (this.#state === 'closed') return
    this.#state = 'closed'
    this.#worker = undefined
    this.#timer?.cancel()
    this.#setLimit(ALONE)
  }
}
