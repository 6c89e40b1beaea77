/** Schedules in real processes: they survive a restart, downtime, a wrong clock and a kill. */
import { TaskPool } from '@neotask/core'
import { TaskScheduler, type Missed } from '@neotask/scheduler'
import { describe, expect, test } from 'vitest'
import { ScheduleProcesses } from './schedule-processes.js'
import type { Work } from './schedule-worker.js'
import { until } from './storages.js'

const SECOND = 1000
const HOUR = 3_600_000

type Finished = (dispose: () => Promise<void>) => void

interface Opened {
  readonly processes: ScheduleProcesses
  /** Of this process, which manages and does not fire. */
  readonly pool: TaskPool<Work>
  readonly scheduler: TaskScheduler<Work>
}

/** A storage, gone with the test. */
async function open(kind: 'sqlite' | 'redis', onTestFinished: Finished): Promise<Opened> {
  const processes = await ScheduleProcesses.open(kind)
  const pool = new TaskPool<Work>({ storage: processes.storage, concurrency: 0 })
  onTestFinished(async () => {
    await pool.close()
    await processes.close()
  })
  return { processes, pool, scheduler: new TaskScheduler(pool) }
}

interface Start {
  readonly slot: number
  readonly id: string
  readonly at: number
}

/** The handlers that were called for the schedule. */
function startsOf(processes: ScheduleProcesses, schedule: string): Start[] {
  const starts: Start[] = []
  for (const line of processes.lines()) {
    if (line.what !== 'started' || !line.id.startsWith(`${schedule}~`)) continue
    starts.push({ slot: Number(line.id.split('~')[1]), id: line.id, at: line.at })
  }
  return starts
}

/** The slots whose tasks have run, in order. A task that a kill interrupted runs again, and its end counts once. */
function slotsOf(processes: ScheduleProcesses, schedule: string): number[] {
  const ends = processes.lines().flatMap((line) => (line.what === 'completed' ? [line.id] : []))
  expect(new Set(ends).size).toBe(ends.length)
  return [...new Set(startsOf(processes, schedule).map(({ slot }) => slot))].sort((a, b) => a - b)
}

describe.concurrent.each(['sqlite', 'redis'] as const)('on %s', (kind) => {
  test('a schedule goes on where it was when all processes are new ones', async ({ onTestFinished }) => {
    const { processes, scheduler } = await open(kind, onTestFinished)
    await scheduler.submitInterval({}, '500ms', { id: 's' })
    await scheduler.submitCron({}, '* * * * * *', { id: 'c' })
    const first = processes.start()
    await until('it fires', () => startsOf(processes, 'c').length >= 2, 20_000)
    await first.finish()
    const before = slotsOf(processes, 's')
    const second = processes.start()
    await until('it goes on', () => startsOf(processes, 'c').length >= 5, 20_000)
    await second.finish()
    const slots = slotsOf(processes, 's')
    expect(slots.length).toBeGreaterThan(before.length)
    const [origin = 0] = slots
    // Anchored: none is off by a ms, through the restart.
    expect(slots.every((slot) => (slot - origin) % 500 === 0)).toBe(true)
    expect(slotsOf(processes, 'c').every((slot) => slot % SECOND === 0)).toBe(true)
    expect(processes.lines().filter(({ what }) => what === 'error')).toEqual([])
  })

  test('a process that was down for five slots does what the missed policy says', async ({
    onTestFinished,
  }) => {
    const { processes, scheduler } = await open(kind, onTestFinished)
    const policies: Record<string, Missed> = {
      skip: 'skip',
      fireOnce: 'fireOnce',
      some: { catchUp: 2 },
      all: { catchUp: 100 },
    }
    const ids = Object.keys(policies)
    const first = processes.start()
    await first.ready
    const start = Math.ceil(Date.now() / SECOND) * SECOND + SECOND
    for (const [id, missed] of Object.entries(policies)) {
      await scheduler.submitInterval({}, '1s', { id, missed, start })
    }
    await until('all have fired', () => ids.every((id) => slotsOf(processes, id).length > 0), 20_000)
    await first.kill()
    const last = Math.max(...ids.flatMap((id) => slotsOf(processes, id)))
    // In the middle between two slots, when five and the one that is in time have passed.
    const back = last + 6 * SECOND + 500
    await until('five slots have passed', () => Date.now() >= back - 400, 20_000)
    const second = processes.start()
    await until(
      'all go on',
      () => ids.every((id) => slotsOf(processes, id).some((slot) => slot > back + SECOND)),
      20_000,
    )
    await second.finish()

    const missed: Record<string, number[]> = {}
    for (const id of ids) {
      const history = (await scheduler.history(id)).reverse()
      const slots = history.map(({ slot }) => slot.getTime())
      // Whatever the policy: each slot is told of once, in order, and has run if it was not left out.
      expect(slots).toEqual(slots.map((_, index) => start + index * SECOND))
      expect(slotsOf(processes, id)).toEqual(slots.filter((_, index) => history[index]?.reason === undefined))
      missed[id] = slots.filter((_, index) => history[index]?.reason === 'missed')
    }
    const { skip = [], fireOnce, some, all } = missed
    // One or two more than five, for a process takes its time to start.
    expect(skip.length).toBeGreaterThanOrEqual(5)
    expect(skip[0]).toBe(last + SECOND)
    // The slot of the present second is in time, and stands for those before it.
    expect(fireOnce).toEqual(skip)
    expect(some).toEqual(skip.slice(0, -2))
    expect(all).toEqual([])
  })

  test('overlap skip goes on when the process that runs the task is killed', async ({ onTestFinished }) => {
    const { processes, scheduler } = await open(kind, onTestFinished)
    const first = processes.start({ holds: true })
    await first.ready
    await scheduler.submitInterval({ hold: true }, '500ms', { id: 's', overlap: 'skip', history: 100 })
    await until(
      'slots are left out',
      async () => {
        return (await scheduler.history('s')).filter(({ reason }) => reason === 'overlap').length >= 2
      },
      20_000,
    )
    expect(startsOf(processes, 's')).toHaveLength(1)
    await first.kill()
    processes.start()
    await until(
      'it fires again',
      () => new Set(startsOf(processes, 's').map(({ slot }) => slot)).size >= 3,
      20_000,
    )
    const history = (await scheduler.history('s')).reverse()
    expect(history[0]).toMatchObject({ outcome: 'success' })
    expect(history[1]).toMatchObject({ reason: 'overlap' })
    // The task that was interrupted ran again, and the slots between were left out.
    const starts = startsOf(processes, 's')
    expect(starts[1]?.id).toBe(starts[0]?.id)
  })
})

test.concurrent(
  'on sqlite, where the clock of the host counts: setting it back an hour fires nothing twice',
  async ({ onTestFinished }) => {
    const { processes, pool, scheduler } = await open('sqlite', onTestFinished)
    await scheduler.submitInterval({}, '500ms', { id: 's' })
    const first = processes.start()
    await until('it fires', () => startsOf(processes, 's').length >= 3, 20_000)
    await first.finish()
    const before = startsOf(processes, 's').length
    const behind = processes.start({ ahead: -HOUR })
    await behind.ready
    // It works, and three slots pass by the right time.
    const plain = await pool.submit({}, { id: 'plain' })
    await until(
      'it runs a task',
      () => processes.lines().some((line) => line.what === 'completed' && line.id === plain),
      20_000,
    )
    await new Promise((resolve) => setTimeout(resolve, 1500))
    expect(startsOf(processes, 's')).toHaveLength(before)
    await behind.finish()
    const right = processes.start()
    await until('it goes on', () => startsOf(processes, 's').length >= before + 3, 20_000)
    await right.finish()
    const slots = slotsOf(processes, 's')
    const [origin = 0] = slots
    expect(slots.every((slot) => (slot - origin) % 500 === 0)).toBe(true)
  },
)

test.concurrent(
  'on redis, clocks of hosts an hour apart fire each slot once, and none early or late',
  async ({ onTestFinished }) => {
    const { processes, scheduler } = await open('redis', onTestFinished)
    const nodes = [processes.start({ ahead: -HOUR }), processes.start({ ahead: HOUR }), processes.start()]
    await Promise.all(nodes.map(({ ready }) => ready))
    const ids = Array.from({ length: 30 }, (_, n) => `s${n}`)
    for (const id of ids) await scheduler.submitInterval({}, '500ms', { id })
    // The machine's monotonic time at a wall time, by this process's clock, which is right.
    const offset = Date.now() - Number(process.hrtime.bigint()) / 1e6
    await until('all fire', () => ids.every((id) => startsOf(processes, id).length >= 6), 30_000)
    for (const node of nodes) await node.finish()
    const late: number[] = []
    for (const id of ids) {
      slotsOf(processes, id)
      for (const start of startsOf(processes, id)) late.push(start.at + offset - start.slot)
    }
    // Two clocks are read one after the other, and both count in whole ms.
    expect(Math.min(...late)).toBeGreaterThan(-2)
    const pids = new Set(
      processes
        .lines()
        .filter(({ what }) => what === 'fired')
        .map(({ pid }) => pid),
    )
    expect([...pids].sort()).toEqual(nodes.map(({ pid }) => pid).sort())
    late.sort((a, b) => a - b)
    console.log(
      `an hour apart: ${late.length} slots, p50 ${late[late.length >> 1]?.toFixed(1)} ms late, the worst ${late.at(-1)?.toFixed(1)}`,
    )
    expect(late[Math.floor(late.length * 0.9)]).toBeLessThan(1000)
  },
)
