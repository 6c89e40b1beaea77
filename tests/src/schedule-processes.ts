/** Processes that fire schedules for a test, see `schedule-worker.ts`, and may be ended in any way. */
import { openStorage, type Storage } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { redisUrl } from './redis-server.js'
import type { Line } from './schedule-worker.js'

const program = join(import.meta.dirname, '..', 'dist', 'schedule-worker.js')

export interface ScheduleProcess {
  readonly pid: number
  /** Resolves when it has begun. */
  readonly ready: Promise<unknown>
  kill(): Promise<void>
  /** Lets it close. */
  finish(): Promise<void>
}

export interface StartOptions {
  /** ms by which it believes the time to be later than it is. */
  readonly ahead?: number
  /** Whether tasks that say so never end. */
  readonly holds?: boolean
}

/** A storage, the processes that work on it, and the log of what they do. */
export class ScheduleProcesses {
  readonly storage: Storage
  readonly #database: string
  readonly #folder: string
  readonly #running = new Set<ScheduleProcess>()

  private constructor(storage: Storage, database: string, folder: string) {
    this.storage = storage
    this.#database = database
    this.#folder = folder
  }

  static async open(kind: 'sqlite' | 'redis'): Promise<ScheduleProcesses> {
    const folder = await mkdtemp(join(tmpdir(), 'neotask-schedules-'))
    if (kind === 'sqlite') {
      const database = join(folder, 'tasks.db')
      const storage = await openStorage(`sqlite:${database}`)
      return new ScheduleProcesses(storage, database, folder)
    }
    const namespace = `test-${randomBytes(6).toString('hex')}`
    const url = await redisUrl()
    const storage = redisStorage({ url, namespace })
    await storage.open()
    return new ScheduleProcesses(storage, `redis:${namespace}:${url}`, folder)
  }

  start({ ahead = 0, holds = false }: StartOptions = {}): ScheduleProcess {
    const shift = `const now = Date.now; Date.now = () => now() + ${ahead}`
    const preload = ahead === 0 ? [] : ['--import', `data:text/javascript,${encodeURIComponent(shift)}`]
    const args = [...preload, program, this.#database, this.#log, holds ? 'holds' : '']
    const child = spawn(process.execPath, args, {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, NODE_NO_WARNINGS: '1' },
    })
    if (child.pid === undefined) throw new Error('the process did not start')
    const end = async (how: () => void): Promise<void> => {
      this.#running.delete(started)
      if (!isRunning(child)) return
      const ended = once(child, 'exit')
      how()
      await ended
    }
    const started: ScheduleProcess = {
      pid: child.pid,
      ready: once(child.stdout, 'data'),
      kill: () => end(() => void child.kill('SIGKILL')),
      finish: () => end(() => void child.stdin.end()),
    }
    this.#running.add(started)
    return started
  }

  /** What the processes have done so far, in the order of their writing. */
  lines(): Line[] {
    if (!existsSync(this.#log)) return []
    return readFileSync(this.#log, 'utf8').split('\n').flatMap(parseLine)
  }

  get #log(): string {
    return join(this.#folder, 'log')
  }

  async close(): Promise<void> {
    await Promise.all([...this.#running].map((started) => started.kill()))
    await this.storage.close()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

/** Nothing for what a kill has cut, or what is being written. */
function parseLine(text: string): Line[] {
  try {
    return [JSON.parse(text) as Line]
  } catch {
    return []
  }
}

function isRunning({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode === null && signalCode === null
}
