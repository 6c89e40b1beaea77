/**
 * Processes that die and freeze. Workers are killed with `kill -9` at random moments while this process submits and
 * waits without a pause; then the storage must agree with what everybody saw: every task that was acknowledged is
 * finished, once, every wait was answered with the right value, and only what a killed process was doing was repeated.
 *
 * `NEOTASK_KILLS=100 npm test -- tests/src/kill` kills that often in each of the two tests; without it 15 times.
 */
import { openStorage, TaskPool, type Storage, type TaskRecord } from '@neotask/core'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Done, Work } from './kill-worker.js'
import { until } from './storages.js'
import { readWitness, type Execution } from './witness.js'

const KILLS = Number(process.env['NEOTASK_KILLS'] ?? 15)
/** Tasks that are submitted and not finished, at most. */
const OPEN = 500
const CONCURRENCY = 8
const REF = { tenant: 'default', queue: 'default' }

const program = join(import.meta.dirname, '..', 'dist', 'kill-worker.js')
let folder: string
let database: string
let log: string
let storage: Storage
let producer: TaskPool<Work, Done>
const workers = new Set<Worker>()

interface Worker {
  readonly child: ChildProcess
  readonly pid: number
  /** Resolves when it has begun to consume. */
  readonly ready: Promise<unknown>
}

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'neotask-kill-'))
  database = join(folder, 'tasks.db')
  log = join(folder, 'log')
  storage = await openStorage(`sqlite:${database}`)
  producer = new TaskPool<Work, Done>({ storage, concurrency: 0 })
})

afterEach(async () => {
  for (const worker of [...workers]) await kill(worker)
  await producer.close()
  await storage.close()
  await rm(folder, { recursive: true })
})

function startWorker(concurrency = CONCURRENCY): Worker {
  const args = [program, database, log, String(concurrency)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  if (child.pid === undefined) throw new Error('the worker did not start')
  const worker = { child, pid: child.pid, ready: once(child.stdout, 'data') }
  workers.add(worker)
  return worker
}

async function kill(worker: Worker): Promise<void> {
  const { child } = worker
  workers.delete(worker)
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
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
async function freeze({ child }: Worker): Promise<void> {
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

async function killAtRandom(atOnce: number): Promise<void> {
  const begin = performance.now()
  const killed = new Set<number>()
  const current = Array.from({ length: atOnce }, () => startWorker())
  const { acknowledged, answers, troubles, stop } = load()
  for (let kills = 1; kills <= KILLS; kills++) {
    const place = Math.floor(Math.random() * atOnce)
    const victim = current[place] as Worker
    // Now and then while it starts, else somewhere in the middle of its work.
    if (Math.random() < 0.8) await victim.ready
    await sleep(Math.random() * 600)
    if (atOnce > 1 && kills % 3 === 0) await freeze(current[(place + 1) % atOnce] as Worker)
    expect([victim.child.exitCode, victim.child.signalCode], 'a worker ended by itself').toEqual([null, null])
    killed.add(victim.pid)
    await kill(victim)
    current[place] = startWorker()
    if (kills % 5 === 0) {
      console.log(
        `${kills} of ${KILLS} kills: ${acknowledged.size} tasks acknowledged, ${answers.size} finished`,
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
  // A worker on a machine so busy that it misses its beats loses tasks too, and may not have noticed yet.
  const excused = ({ pid, lost, refused }: Execution): boolean => killed.has(pid) || lost || refused
  const all = (): Execution[] => [...readWitness(log).values()].flat()
  const repeated = (): Execution[] => all().filter(({ id, token }) => token !== winners.get(id))
  await until('every repeat has its reason', () => repeated().every(excused), 10_000)
  const open = new Map<number, number>()
  for (const { accepted, ended, pid } of repeated()) {
    expect(accepted).toBe(false)
    if (!ended) open.set(pid, (open.get(pid) ?? 0) + 1)
  }
  expect(Math.max(0, ...open.values()), 'attempts that one process left open').toBeLessThanOrEqual(
    CONCURRENCY,
  )
  const won = new Map(all().map((execution) => [`${execution.id} ${execution.token}`, execution]))
  expect(won.size, 'a token is given once').toBe(all().length)
  for (const [id, token] of winners) {
    expect(won.get(`${id} ${token}`)).toMatchObject({ ended: true, pid: answers.get(id)?.pid })
  }
  // Otherwise nobody was killed at work, and nothing was tested.
  expect(repeated().length).toBeGreaterThan(KILLS / 4)
  const seconds = ((performance.now() - begin) / 1000).toFixed(1)
  const others = repeated().filter(({ pid }) => !killed.has(pid)).length
  console.log(
    `${KILLS} kills, ${atOnce} at work, ${seconds} s: ${acknowledged.size} tasks, each finished once; ` +
      `${repeated().length} attempts were repeated, ${others} of them because their worker was frozen or too slow`,
  )
}

test(
  'a worker that is killed again and again loses nothing and finishes nothing twice',
  { timeout: 600_000 },
  () => killAtRandom(1),
)

test(
  'two workers of which one is killed, again and again, and the other frozen now and then',
  { timeout: 600_000 },
  () => killAtRandom(2),
)

test(
  'a worker that was frozen for longer than its session cannot finish what another has taken over',
  { timeout: 90_000 },
  async () => {
    const frozen = startWorker(1)
    const id = await producer.submit({ n: 7, ms: 300 })
    const executions = () => (existsSync(log) ? (readWitness(log).get(id) ?? []) : [])
    await until('it runs', () => executions().length === 1, 20_000)
    frozen.child.kill('SIGSTOP')
    const other = startWorker(1)
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
    await kill(other)
    expect(await producer.run({ n: 8, ms: 1 })).toEqual({ square: 64, pid: frozen.pid })
  },
)
