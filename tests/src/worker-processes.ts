/** Processes that work for a test, see `kill-worker.ts`, and may be ended in any way. */
import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { Usage } from './kill-worker.js'

const program = join(import.meta.dirname, '..', 'dist', 'kill-worker.js')

export interface WorkerProcess {
  readonly child: ChildProcessByStdio<Writable, Readable, null>
  readonly pid: number
  /** Resolves when it has begun to consume. */
  readonly ready: Promise<unknown>
  /** All that it prints. */
  readonly output: Promise<string>
}

export class WorkerProcesses {
  readonly #database: string
  readonly #log: string
  readonly #sessionTtl: string
  readonly #running = new Set<WorkerProcess>()

  /**
   * @param database a SQLite file, or `redis:namespace:target`
   * @param log where they write down what they do, see `witness.ts`
   */
  constructor(database: string, log: string, sessionTtl = '1s') {
    this.#database = database
    this.#log = log
    this.#sessionTtl = sessionTtl
  }

  start(concurrency: number): WorkerProcess {
    const args = [program, this.#database, this.#log, String(concurrency), this.#sessionTtl]
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
    if (child.pid === undefined) throw new Error('the worker did not start')
    const worker = { child, pid: child.pid, ready: once(child.stdout, 'data'), output: text(child.stdout) }
    this.#running.add(worker)
    return worker
  }

  async kill(worker: WorkerProcess): Promise<void> {
    const { child } = worker
    this.#running.delete(worker)
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill('SIGKILL')
    await once(child, 'exit')
  }

  async killAll(): Promise<void> {
    for (const worker of [...this.#running]) await this.kill(worker)
  }

  /** Lets it end what it is doing and close. */
  async finish(worker: WorkerProcess): Promise<Usage> {
    worker.child.stdin.end()
    const [, last = ''] = (await worker.output).trimEnd().split('\n')
    this.#running.delete(worker)
    return JSON.parse(last) as Usage
  }
}
