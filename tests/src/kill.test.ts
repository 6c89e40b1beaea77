/**
 * Processes that die and freeze. Workers are killed with `kill -9` at random moments while this process submits and
 * waits without a pause; then the storage must agree with what everybody saw: every task that was acknowledged is
 * finished, once, every wait was answered with the right value, and only what a killed process was doing was repeated.
 *
 * `NEOTASK_KILLS=100 npm test -- tests/src/kill` kills that often in each of the two tests on SQLite; without it 15 times.
 * `NEOTASK_KILL_SECONDS=60` kills a worker on Redis every second for so long; without it for 5 s.
 */
import { openStorage, TaskPool, type Storage, type TaskRecord } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import Database from 'better-sqlite3'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Done, Work } from './kill-worker.js'
import { redisUrl } from './redis-server.js'
import { until } from './storages.js'
import { readWitness, type Execution } from './witness.js'
import { WorkerProcesses, type WorkerProcess } from './worker-processes.js'

const KILLS = Number(process.env['NEOTASK_KILLS'] ?? 15)
const KILL_SECONDS = Number(process.env['NEOTASK_KILL_SECONDS'] ?? 5)
/** Tasks that are submitted and not finished, at most. */
const OPEN = 500
const CONCURRENCY = 8
const REF = { tenant: 'default', queue: 'default' }

let folder: string
let log: string
let storage: Storage
let producer: TaskPool<Work, Done>
let workers: WorkerProcesses

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'neotask-kill-'))
  log = join(folder, 'log')
})

afterEach(async () => {
  await workers.killAll()
  await producer.close()
  await storage.close()
  await rm(folder, { recursive: true })
})

type Kind = 'sqlite' | 'redis'

async function open(kind: Kind, sessionTtl?: string): Promise<void> {
  if (kind === 'sqlite') {
    const database = join(folder, 'tasks.db')
    storage = await openStorage(`sqlite:${database}`)
    workers = new WorkerProcesses(database, log, sessionTtl)
  } else {
    const namespace = `test-${randomBytes(6).toString('hex')}`
    const url = await redisUrl()
    storage = redisStorage({ url, namespace })
    await storage.open()
    workers = new WorkerProcesses(`redis:${namespace}:${url}`, log, sessionTtl)
  }
  producer = new TaskPool<Work, Done>({ storage, concurrency: 0 })
}

/** Stops the process, though not in the middle of a transaction: then nobody could write until it goes on. */
async function stopBetweenSteps({ child }: WorkerProcess): Promise<void> {
  for (;;) {
    child.kill('SIGSTOP')
    await until('it stands still', () => isStopped(child.pid as number), 5000)
    if (isWritable()) return
    child.kill('SIGCONT')
    await sleep(5)
  }
}

const isStopped = (pid: number): boolean => / T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))

/** Whether nobody has a transaction open on the file, if there is one. */
function isWritable(): boolean {
  const path = join(folder, 'tasks.db')
  if (!existsSync(path)) return true
  const database = new Database(path, { timeout: 100 })
  try {
    database.exec('BEGIN IMMEDIATE; ROLLBACK')
    return true
  } catch {
    return false
  } finally {
    database.close()
  }
}

/** Submits and waits until it is told to stop, with never more than {@link OPEN} tasks under way. */
function load() {
  const acknowledged = new Map<string, number>()
  const answers = new Map<string, Done>()
  const troubles: unknown[] = []
  let stopped = false
  let next = 0
  const lane = async (): Promise<void> => {
    while (!stopped) {
      const n = next++
      try {
        const id = await producer.submit({ n, ms: Math.floor(Math.random() * 30) }, { id: `task-${n}` })
        acknowledged.set(id, n)
        answers.set(id, await producer.waitForResult(id, { timeout: '2m' }))
      } catch (error) {
        troubles.push(error)
      }
    }
  }
  const lanes = Array.from({ length: OPEN }, lane)
  return {
    acknowledged,
    answers,
    troubles,
    /** Resolves when every wait was answered. */
    async stop(): Promise<void> {
      stopped = true
      await Promise.all(lanes)
    },
  }
}

/** Stops a process in whatever it is at, perhaps a transaction, for longer than its session lives. */
async function freeze({ child }: WorkerProcess): Promise<void> {
  child.kill('SIGSTOP')
  await sleep(1200 + Math.random() * 600)
  child.kill('SIGCONT')
}

async function readRecords(ids: readonly string[]): Promise<TaskRecord[]> {
  const records: TaskRecord[] = []
  for (let start = 0; start < ids.length; start += 500) {
    for (const record of await storage.queue.get(REF, ids.slice(start, start + 500))) {
      if (record === undefined) throw new Error('an acknowledged task is unknown')
      records.push(record)
    }
  }
  return records
}

interface Killing {
  readonly kind: Kind
  /** Workers at the same time. */
  readonly atOnce: number
  readonly kills: number
  /** ms from one kill to the next: a random time when it is not given. */
  readonly every?: number
  /** Whether another one is frozen now and then for longer than its session lives. Default: false. */
  readonly freezes?: boolean
  /** Default: 1 s, which a busy machine may let pass without a sign of life. */
  readonly sessionTtl?: string
}

async function killAtRandom({ kind, atOnce, kills, every, freezes, sessionTtl }: Killing): Promise<void> {
  await open(kind, sessionTtl)
  const begin = performance.now()
  const killed = new Set<number>()
  const current = Array.from({ length: atOnce }, () => workers.start(CONCURRENCY))
  const { acknowledged, answers, troubles, stop } = load()
  await current[0]?.ready
  for (let kill = 1; kill <= kills; kill++) {
    const place = Math.floor(Math.random() * atOnce)
    const victim = current[place] as WorkerProcess
    if (every === undefined) {
      // Now and then while it starts, else somewhere in the middle of its work.
      if (Math.random() < 0.8) await victim.ready
      await sleep(Math.random() * 600)
    } else {
      await sleep(every)
    }
    if (freezes === true && kill % 3 === 0) await freeze(current[(place + 1) % atOnce] as WorkerProcess)
    expect([victim.child.exitCode, victim.child.signalCode], 'a worker ended by itself').toEqual([null, null])
    killed.add(victim.pid)
    await workers.kill(victim)
    current[place] = workers.start(CONCURRENCY)
    if (kill % 5 === 0) {
      console.log(
        `${kill} of ${kills} kills: ${acknowledged.size} tasks acknowledged, ${answers.size} finished`,
      )
    }
  }
  await stop()

  // Every wait was answered, with the right value.
  expect(troubles).toEqual([])
  expect(answers.size).toBe(acknowledged.size)
  for (const [id, n] of acknowledged) expect(answers.get(id)?.square).toBe(n * n)

  // The storage says the same.
  const counts = await producer.counts()
  expect(counts).toMatchObject({
    success: acknowledged.size,
    failed: 0,
    cancelled: 0,
    pending: 0,
    running: 0,
    scheduled: 0,
  })
  const records = await readRecords([...acknowledged.keys()])
  for (const record of records) {
    expect(record).toMatchObject({ state: 'success', attempts: 1 })
    expect(JSON.parse(String(record.result))).toEqual(answers.get(record.id))
  }

  // And so does the witness: what was accepted was done once, and what was repeated a killed process had begun.
  const winners = new Map(records.map(({ id, settledToken }) => [id, settledToken]))
  // A worker that was frozen, or missed its beats, loses tasks too, and may not have noticed yet.
  const mayMiss = freezes === true || sessionTtl === undefined
  const excused = ({ pid, lost, refused }: Execution): boolean =>
    killed.has(pid) || (mayMiss && (lost || refused))
  const all = (): Execution[] => [...readWitness(log).values()].flat()
  const repeated = (): Execution[] => all().filter(({ id, token }) => token !== winners.get(id))
  await until('every repeat has its reason', () => repeated().every(excused), 10_000)
  const unended = new Map<number, number>()
  for (const { accepted, ended, pid } of repeated()) {
    expect(accepted).toBe(false)
    if (!ended) unended.set(pid, (unended.get(pid) ?? 0) + 1)
  }
  expect(Math.max(0, ...unended.values()), 'attempts that one process left open').toBeLessThanOrEqual(
    CONCURRENCY,
  )
  // Under way when its process was killed: not ended, or the answer to its end not heard.
  const interrupted = all().filter(({ pid, accepted }) => killed.has(pid) && !accepted).length
  if (!mayMiss) expect(all().length - acknowledged.size).toBeLessThanOrEqual(interrupted)
  const won = new Map(all().map((execution) => [`${execution.id} ${execution.token}`, execution]))
  expect(won.size, 'a token is given once').toBe(all().length)
  for (const [id, token] of winners) {
    expect(won.get(`${id} ${token}`)).toMatchObject({ ended: true, pid: answers.get(id)?.pid })
  }
  // Otherwise nobody was killed at work, and nothing was tested.
  expect(repeated().length).toBeGreaterThan(kills / 4)
  const seconds = ((performance.now() - begin) / 1000).toFixed(1)
  const others = repeated().filter(({ pid }) => !killed.has(pid)).length
  console.log(
    `${kind}: ${kills} kills, ${atOnce} at work, ${seconds} s: ${acknowledged.size} tasks, each finished once; ` +
      `${interrupted} attempts were under way at kills, ${repeated().length} attempts were repeated, ` +
      `${others} of them because their worker was frozen or too slow`,
  )
}

test(
  'a worker that is killed again and again loses nothing and finishes nothing twice',
  { timeout: 600_000 },
  () => killAtRandom({ kind: 'sqlite', atOnce: 1, kills: KILLS }),
)

test(
  'two workers of which one is killed, again and again, and the other frozen now and then',
  { timeout: 600_000 },
  () => killAtRandom({ kind: 'sqlite', atOnce: 2, kills: KILLS, freezes: true }),
)

test(
  'three workers on Redis of which one is killed every second',
  { timeout: 120_000 + 2000 * KILL_SECONDS },
  () => killAtRandom({ kind: 'redis', atOnce: 3, kills: KILL_SECONDS, every: 1000, sessionTtl: '3s' }),
)

test.each(['sqlite', 'redis'] as const)(
  'a worker on %s that was frozen for longer than its session cannot finish what another has taken over',
  { timeout: 90_000 },
  async (kind) => {
    await open(kind)
    const frozen = workers.start(1)
    const id = await producer.submit({ n: 7, ms: 300 })
    const executions = (): Execution[] => (existsSync(log) ? (readWitness(log).get(id) ?? []) : [])
    await until('it runs', () => executions().length === 1, 20_000)
    await stopBetweenSteps(frozen)
    const other = workers.start(1)
    expect(await producer.waitForResult(id, { timeout: '20s' })).toEqual({ square: 49, pid: other.pid })
    const record = await producer.getTask(id)
    expect(record).toMatchObject({ state: 'success', attempts: 1 })

    frozen.child.kill('SIGCONT')
    await until('its end was refused', () => executions()[0]?.refused === true, 20_000)
    const [first, second] = executions()
    expect(executions()).toHaveLength(2)
    expect(first).toMatchObject({ pid: frozen.pid, ended: true, accepted: false, refused: true })
    expect(second).toMatchObject({ pid: other.pid, ended: true, accepted: true, refused: false })
    expect(second!.token).toBeGreaterThan(first!.token)
    expect(await producer.getTask(id)).toEqual(record)
    expect(await producer.waitForResult(id, { timeout: '2m' })).toEqual({ square: 49, pid: other.pid })

    // And it is a good worker again.
    await workers.kill(other)
    expect(await producer.run({ n: 8, ms: 1 })).toEqual({ square: 64, pid: frozen.pid })
  },
)
