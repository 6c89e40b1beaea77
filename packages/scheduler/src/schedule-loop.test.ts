/** What schedules do as time goes by: every policy, every place at which a node may die, every clock that is wrong. */
import { ManualClock } from '@neotask/core/testing'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Missed, Overlap } from './schedule.js'
import type { ScheduleOptions } from './schedule-options.js'
import { HOUR, MINUTE, REF, SECOND, World, type Node } from './world.test-helper.js'

let world: World

beforeEach(() => {
  world = new World()
})

afterEach(async () => {
  await world.close()
})

const TENANT = 'default'
const keyOf = (id: string): string => `schedule:default/${id}`

describe('a schedule', () => {
  it('fires each slot once, at its instant, in a pool that consumes and in one that only submits', async () => {
    for (const concurrency of [10, 0]) {
      const node = world.node({ concurrency })
      const id = `every${concurrency}`
      await node.pool.start()
      await node.scheduler.submitInterval('x', '10s', { id, start: world.at(10 * SECOND) })
      await node.scheduler.submitCron('y', '*/20 * * * * *', { id: `cron${concurrency}` })
    }
    await world.advance(9999)
    expect(await world.tasks('every10')).toEqual([])
    await world.advance(1)
    expect(await world.tasks('every10')).toEqual([10_000])
    await world.advance(30 * SECOND)
    for (const id of ['every10', 'every0'])
      expect(await world.tasks(id)).toEqual([10_000, 20_000, 30_000, 40_000])
    for (const id of ['cron10', 'cron0']) expect(await world.tasks(id)).toEqual([20_000, 40_000])
    const times = new Map(world.ran)
    for (const [id, at] of times) expect(at - Number(id.split('~')[1]) + world.start).toBe(0)
    expect(times.size).toBe(12)
  })

  it('fires as long as any of its nodes lives, and each slot once however many there are', async () => {
    const nodes = [world.node(), world.node(), world.node()]
    for (const node of nodes) await node.pool.start()
    await nodes[0]?.scheduler.submitInterval('x', '1s', { id: 's' })
    for (const node of nodes) {
      await world.advance(10 * SECOND)
      node.die()
    }
    expect(await world.tasks('s')).toEqual(Array.from({ length: 30 }, (_, n) => (n + 1) * SECOND))
    const fired = nodes.map(({ told }) => told.length)
    expect(fired.reduce((sum, count) => sum + count)).toBe(30)
  })

  it('is woken from anywhere when it is created or changed, without a poll', async () => {
    const [one, other] = [world.node(), world.node({ concurrency: 0 })]
    await one.pool.start()
    await world.advance(100)
    // Not started: it manages, and the other one fires.
    await other.scheduler.submitInterval('x', 150, { id: 's' })
    await world.advance(150)
    expect(await world.tasks('s')).toEqual([250])
    expect(one.told).toEqual([['fired', 250]])
  })

  it('is met in time also when it comes due while a claim is under way', async () => {
    const [one, other] = [world.node(), world.node({ concurrency: 0 })]
    await one.pool.start()
    await world.advance(100)
    one.storage.fail('records.claimDue', { kind: 'slow', ms: 300, times: 1 })
    await world.advance(950)
    // That claim is carried out, and its reply is on the way.
    await other.scheduler.submitInterval('x', 100, { id: 's', maxRuns: 1 })
    await world.advance(300)
    expect(one.told).toHaveLength(1)
  })

  it('costs an idle node one call a second', async () => {
    const node = world.node({ concurrency: 0 })
    await node.pool.start()
    await node.scheduler.submitInterval('x', '1h', { id: 's' })
    await world.advance(10 * SECOND)
    const before = node.storage.calls.length
    await world.advance(MINUTE)
    expect(node.storage.calls.length - before).toBeLessThanOrEqual(60)
  })

  it('puts each slot off by its jitter, and the next one from the slot', async () => {
    const node = world.node()
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's', jitter: '9s', start: world.at(0) })
    await world.advance(MINUTE + 9 * SECOND)
    expect(await world.tasks('s')).toEqual([10, 20, 30, 40, 50, 60].map((s) => s * SECOND))
    const late = world.ran.map(([id, at]) => at - (Number(id.split('~')[1]) - world.start))
    expect(new Set(late).size).toBeGreaterThan(4)
    expect(Math.max(...late)).toBeLessThan(9 * SECOND)
    expect(Math.max(...late)).toBeGreaterThan(2 * SECOND)
  })

  it('puts no slot off beyond the next one, also where a change of the clocks brings that near', async () => {
    // From 01:59 on the clocks of Berlin show 03:00, so the slots of 2:30 and 3:30 are half an hour apart.
    world = new World(Date.UTC(2026, 2, 1))
    const node = world.node()
    await node.pool.start()
    const ids = Array.from({ length: 20 }, (_, i) => `s${i}`)
    const options = { zone: 'Europe/Berlin', jitter: '59m', missed: 'skip', overlap: 'skip' } as const
    for (const id of ids) await node.scheduler.submitCron('x', '30 2,3 * * *', { id, ...options })
    const day = 28 * 24 * HOUR
    world.clock.leap(day + HOUR / 2)
    await world.advance(3 * HOUR)
    for (const id of ids) {
      const slots = (await world.history(node, id)).filter(([slot]) => slot > day + HOUR / 2)
      expect(slots).toEqual([
        [day + HOUR, 'success'],
        [day + 1.5 * HOUR, 'success'],
      ])
    }
  })

  it('ends with its end, and with its last run', async () => {
    const node = world.node()
    await node.pool.start()
    await node.scheduler.submitInterval('x', '1s', { id: 'end', end: world.at(3 * SECOND) })
    await node.scheduler.submitInterval('x', '1s', { id: 'runs', maxRuns: 2 })
    await world.advance(MINUTE)
    expect(await world.tasks('end')).toEqual([1000, 2000, 3000])
    expect(await world.tasks('runs')).toEqual([1000, 2000])
    for (const id of ['end', 'runs']) {
      expect(await node.scheduler.get(id)).toMatchObject({ state: 'ended', next: undefined })
    }
  })
})

describe('the overlap policy', () => {
  // The handler of the first slot ends after 2.5 s, all others at once.
  it.each<[Overlap, started: [slot: number, at: number][], history: string[]]>([
    [
      'allow',
      [
        [1000, 1000],
        [2000, 2000],
        [3000, 3000],
        [4000, 4000],
      ],
      ['success', 'success', 'success', 'success'],
    ],
    [
      'skip',
      [
        [1000, 1000],
        [4000, 4000],
      ],
      ['success', 'overlap', 'overlap', 'success'],
    ],
    [
      'bufferOne',
      [
        [1000, 1000],
        [2000, 3500],
        [4000, 4000],
      ],
      ['success', 'success', 'overlap', 'success'],
    ],
    [
      'cancelRunning',
      [
        [1000, 1000],
        [2000, 2000],
        [3000, 3000],
        [4000, 4000],
      ],
      ['cancelled', 'success', 'success', 'success'],
    ],
  ])('%s', async (overlap, started, history) => {
    const node = world.node()
    await node.pool.start()
    await node.scheduler.submitInterval('x', '1s', { id: 's', overlap, maxRuns: started.length })
    world.holds = true
    await world.advance(1000)
    world.holds = false
    await world.advance(2500)
    world.running.get(`s~${world.at(1000)}`)?.('done')
    await world.advance(1000)
    const order = world.ran.map(([id, at]) => [Number(id.split('~')[1]) - world.start, at])
    expect(order).toEqual(started)
    expect((await world.history(node, 's')).map(([, how]) => how)).toEqual(history)
  })

  it('bufferOne takes a task that waits for its retry for the running one', async () => {
    const node = world.node({ concurrency: 0 })
    await node.pool.start()
    await node.scheduler.submitInterval('x', '1s', { id: 's', overlap: 'bufferOne' })
    await world.advance(4000)
    // Nobody runs them: one is active, one is buffered behind it, and there is no place for more.
    expect(await world.history(node, 's')).toEqual([
      [1000, 'pending'],
      [2000, 'blocked'],
      [3000, 'overlap'],
      [4000, 'overlap'],
    ])
  })
})

describe('the missed policy', () => {
  // Nobody is there for the slots of 2 to 6 s; who comes back looks at 6.5 s, when the last of them is half a second late.
  it.each<[Missed, tasks: number[], history: string[]]>([
    ['skip', [1, 6, 7], ['success', 'missed', 'missed', 'missed', 'missed', 'success', 'success']],
    ['fireOnce', [1, 6, 7], ['success', 'missed', 'missed', 'missed', 'missed', 'success', 'success']],
    [
      { catchUp: 2 },
      [1, 4, 5, 6, 7],
      ['success', 'missed', 'missed', 'success', 'success', 'success', 'success'],
    ],
    [{ catchUp: 100 }, [1, 2, 3, 4, 5, 6, 7], Array.from({ length: 7 }, () => 'success')],
  ])('%o, when the last slot is still in time', async (missed, tasks, history) => {
    const first = world.node()
    await first.pool.start()
    await first.scheduler.submitInterval('x', '1s', { id: 's', missed })
    await world.advance(1500)
    first.die()
    await world.advance(5000)
    const second = world.node()
    await second.pool.start()
    await world.advance(1000)
    expect(await world.tasks('s')).toEqual(tasks.map((s) => s * SECOND))
    expect((await world.history(second, 's')).map(([, how]) => how)).toEqual(history)
  })

  // Nobody is there from 1:30 to 6:30; a slot of every minute is missed when it is 30 s late.
  it.each<[Missed, tasks: number[]]>([
    ['skip', [1, 7]],
    ['fireOnce', [1, 6, 7]],
    [{ catchUp: 1 }, [1, 6, 7]],
    [{ catchUp: 3 }, [1, 4, 5, 6, 7]],
    [{ catchUp: 9 }, [1, 2, 3, 4, 5, 6, 7]],
  ])('%o, when all are too late', async (missed, tasks) => {
    const first = world.node()
    await first.pool.start()
    await first.scheduler.submitCron('x', '* * * * *', { id: 's', missed })
    await world.advance(1.5 * MINUTE)
    first.die()
    await world.advance(5 * MINUTE + 10 * SECOND)
    const second = world.node()
    await second.pool.start()
    await world.advance(MINUTE)
    expect(await world.tasks('s')).toEqual(tasks.map((m) => m * MINUTE))
    const reasons = (await world.history(second, 's')).filter(([, how]) => how === 'missed')
    expect(reasons).toHaveLength(7 - tasks.length)
  })

  // The slots of 2 to 5 s come at once, and the three newest of those that were missed are wanted.
  it.each<[Overlap, history: string[]]>([
    ['allow', ['success', 'success', 'success', 'success', 'success']],
    ['skip', ['success', 'success', 'overlap', 'overlap', 'overlap']],
    ['bufferOne', ['success', 'success', 'success', 'overlap', 'overlap']],
    ['cancelRunning', ['success', 'overlap', 'overlap', 'overlap', 'success']],
  ])('with several slots at once and %s', async (overlap, history) => {
    const first = world.node()
    await first.pool.start()
    await first.scheduler.submitInterval('x', '1s', { id: 's', missed: { catchUp: 10 }, overlap })
    await world.advance(1500)
    first.die()
    await world.advance(4000)
    const second = world.node()
    await second.pool.start()
    await world.advance(400)
    expect((await world.history(second, 's')).map(([, how]) => how)).toEqual(history)
    const fired = history.flatMap((how, index) => (how === 'success' ? [(index + 1) * SECOND] : []))
    expect(await world.tasks('s')).toEqual(fired)
  })

  it('goes by the tolerance that is given', async () => {
    const first = world.node()
    await first.scheduler.submitInterval('x', '1s', { id: 'long', missed: 'skip', tolerance: '3s' })
    await first.scheduler.submitInterval('x', '1h', {
      id: 'short',
      missed: 'skip',
      tolerance: 0,
      start: world.at(2000),
    })
    first.die()
    await world.advance(4500)
    const second = world.node()
    await second.pool.start()
    await world.advance(100)
    expect(await world.tasks('long')).toEqual([2000, 3000, 4000])
    expect(await world.tasks('short')).toEqual([])
  })

  it('fires all that are in time by a long tolerance, however many they are', async () => {
    const first = world.node()
    await first.scheduler.submitInterval('x', '1s', { id: 's', missed: 'skip', tolerance: '10m' })
    first.die()
    world.clock.leap(5 * MINUTE)
    const second = world.node({ concurrency: 0 })
    await second.pool.start()
    await world.advance(10)
    expect(await world.tasks('s')).toEqual(Array.from({ length: 300 }, (_, n) => (n + 1) * SECOND))
  })

  it('fires a thousand at once at most, the newest', async () => {
    const first = world.node()
    await first.scheduler.submitInterval('x', '1s', {
      id: 's',
      missed: 'skip',
      tolerance: '2h',
      maxRuns: 5000,
    })
    first.die()
    world.clock.leap(HOUR)
    const second = world.node({ concurrency: 0 })
    await second.pool.start()
    await world.advance(10)
    expect(await second.pool.counts()).toMatchObject({ pending: 1000 })
    expect(await second.pool.getStatus(`s~${world.at(HOUR)}`)).toBe('pending')
  })

  it('asks for few tasks after a long time, however many slots were missed', async () => {
    const first = world.node()
    for (let i = 0; i < 20; i++) await first.scheduler.submitCron('x', '* * * * *', { id: `s${i}` })
    first.die()
    world.clock.leap(30 * 24 * HOUR)
    const second = world.node()
    await second.pool.start()
    await world.advance(10)
    const asked = second.storage.callsOf('queue.get').flatMap(({ args: [, ids] }) => ids)
    expect(asked.length).toBeLessThanOrEqual(20 * 50)
    for (let i = 0; i < 20; i++) expect(await world.history(second, `s${i}`)).toHaveLength(25)
  })

  it('finds the newest of very many slots at once', async () => {
    const first = world.node()
    await first.scheduler.submitInterval('x', '1s', { id: 's', missed: { catchUp: 3 } })
    first.die()
    world.clock.leap(400 * 24 * HOUR + 500)
    const second = world.node()
    await second.pool.start()
    await world.advance(10)
    const now = 400 * 24 * HOUR
    expect(await world.tasks('s')).toEqual([now - 3000, now - 2000, now - 1000, now])
  })
})

// ------------------------------------------------------------------------------------------------- crashes

/** Where a node dies; what the call is that it still sends, and whether that reaches the storage. */
const DEATHS = [
  ['before its claim', 'records.claimDue', 'before'],
  ['after its claim', 'records.claimDue', 'after'],
  ['while it looks for earlier tasks', 'queue.get', 'before'],
  ['before it cancels', 'queue.cancel', 'before'],
  ['after it cancelled', 'queue.cancel', 'after'],
  ['before it enqueues', 'queue.enqueue', 'before'],
  ['after it enqueued', 'queue.enqueue', 'after'],
  ['before it puts', 'records.putAll', 'before'],
  ['after it put', 'records.putAll', 'after'],
] as const

/** The node dies at the first such call about something that is due. */
function dieAt(
  node: Node,
  call: (typeof DEATHS)[number][1],
  when: 'before' | 'after',
  isArmed: () => boolean,
): void {
  // Which call it is makes no difference here.
  node.storage.intercept(call as 'records.claimDue', async (forward) => {
    if (!isArmed()) return await forward()
    if (when === 'after') await forward()
    node.die()
    throw new Error('killed')
  })
}

describe('a node that dies', () => {
  const POLICIES: readonly (readonly [Overlap, Missed])[] = [
    ['allow', 'fireOnce'],
    ['allow', 'skip'],
    ['allow', { catchUp: 10 }],
    ['skip', { catchUp: 10 }],
    ['bufferOne', { catchUp: 10 }],
    ['cancelRunning', 'fireOnce'],
  ]
  const cases = DEATHS.flatMap((death) =>
    POLICIES.map((policies) => [...death, ...policies] as const),
  ).filter(
    // What a policy never asks for cannot be died at.
    ([, call, , overlap]) =>
      (call !== 'queue.get' || overlap !== 'allow') &&
      (call !== 'queue.cancel' || overlap === 'cancelRunning'),
  )

  it.each(cases)(
    '%s (%s %s) with %s and %o leaves each slot fired once',
    async (_, call, when, overlap, missed) => {
      const first = world.node()
      await first.pool.start()
      await first.scheduler.submitInterval('x', '1m', { id: 's', overlap, missed, maxRuns: 4 })
      // Where it makes a difference, the task of the first slot runs when the second one comes.
      world.holds = overlap === 'bufferOne' || overlap === 'cancelRunning'
      await world.advance(MINUTE + 100)
      expect(world.ran).toHaveLength(1)
      dieAt(first, call, when, () => world.time >= 2 * MINUTE)
      await world.advance(MINUTE)
      expect(first.storage.isDown).toBe(true)
      world.holds = false
      const second = world.node()
      await second.pool.start()
      // Its lease of 5 s has to be over, and the slot is not too late then.
      await world.advance(3 * MINUTE)
      expect(await world.tasks('s')).toEqual([1, 2, 3, 4].map((m) => m * MINUTE))
      expect(new Set(world.ran.map(([id]) => id)).size).toBe(4)
      const history = await world.history(second, 's')
      expect(history.map(([slot]) => slot)).toEqual([1, 2, 3, 4].map((m) => m * MINUTE))
      const isCancelled = overlap === 'cancelRunning'
      expect(history.map(([, how]) => how)).toEqual([
        isCancelled ? 'cancelled' : 'success',
        ...Array<string>(3).fill('success'),
      ])
      expect(await second.scheduler.get('s')).toMatchObject({ runs: 4, state: 'ended' })
    },
  )

  it('and comes back late finds the slot that it fired, and does not call it missed', async () => {
    for (const missed of ['skip', 'fireOnce'] as const) {
      const first = world.node()
      await first.pool.start()
      await first.scheduler.submitInterval('x', '1h', { id: missed, missed })
      const begun = world.time
      dieAt(first, 'records.putAll', 'before', () => world.time >= begun + HOUR)
      await world.advance(HOUR + 100)
      await world.advance(10 * MINUTE)
      const second = world.node()
      await second.pool.start()
      await world.advance(SECOND)
      expect((await world.history(second, missed)).map(([, how]) => how)).toEqual(['success'])
      expect(await second.scheduler.get(missed)).toMatchObject({ runs: 1 })
      expect(second.told).toContainEqual(['fired', begun + HOUR])
      second.die()
    }
  })

  it('after it enqueued, and whose slot the next one replaces, has fired it all the same', async () => {
    const first = world.node()
    await first.pool.start()
    await first.scheduler.submitInterval('x', '3s', { id: 's', overlap: 'cancelRunning', tolerance: '1m' })
    world.holds = true
    dieAt(first, 'records.putAll', 'before', () => true)
    await world.advance(3100)
    const second = world.node()
    await second.pool.start()
    // The lease ends when the slot of 6 s has come too.
    await world.advance(5900)
    expect(await world.history(second, 's')).toEqual([
      [3000, 'cancelled'],
      [6000, 'cancelled'],
      [9000, 'running'],
    ])
    expect(await second.scheduler.get('s')).toMatchObject({ runs: 3 })
    world.holds = false
    world.running.get(`s~${world.at(9000)}`)?.('done')
  })

  it('after it enqueued, and whose slot is too late by now, has fired what is in the way of the next', async () => {
    const first = world.node()
    await first.pool.start()
    await first.scheduler.submitInterval('x', '1s', { id: 's', overlap: 'skip', missed: 'skip' })
    world.holds = true
    dieAt(first, 'records.putAll', 'before', () => true)
    await world.advance(1100)
    const second = world.node()
    await second.pool.start()
    await world.advance(8 * SECOND)
    const slots = await world.history(second, 's')
    expect(slots[0]).toEqual([1000, 'running'])
    expect(await world.tasks('s')).toEqual([1000])
    world.running.get(`s~${world.at(1000)}`)?.('done')
  })

  it('is only slow, and puts when another one has done its work: that counts once', async () => {
    const [first, second] = [world.node(), world.node()]
    await first.pool.start()
    await first.scheduler.submitInterval('x', '10s', { id: 's' })
    first.storage.fail('records.putAll', { kind: 'late', ms: 8000, times: 1 })
    await world.advance(10 * SECOND + 100)
    await second.pool.start()
    await world.advance(30 * SECOND)
    expect(await world.tasks('s')).toEqual([10_000, 20_000, 30_000, 40_000])
    expect((await world.history(second, 's')).map(([slot]) => slot)).toEqual([10_000, 20_000, 30_000, 40_000])
    expect(await second.scheduler.get('s')).toMatchObject({ runs: 4 })
    const told = [...first.told, ...second.told].map(([, slot]) => slot)
    expect(told.sort((a, b) => a - b)).toEqual([10_000, 20_000, 30_000, 40_000])
  })

  it('and left a task that runs keeps skip waiting for its end only', async () => {
    const first = world.node()
    await first.pool.start()
    await first.scheduler.submitInterval('x', '10s', { id: 's', overlap: 'skip' })
    world.holds = true
    await world.advance(10 * SECOND)
    first.die()
    world.holds = false
    const second = world.node()
    await second.pool.start()
    await world.advance(MINUTE)
    const history = (await world.history(second, 's')).map(([, how]) => how)
    // The session of the dead node lasts 25 s; then its task runs here.
    expect(history).toEqual(['success', 'overlap', 'overlap', 'success', 'success', 'success', 'success'])
  })
})

describe('a node that stops between its claim and its enqueue, and goes on later,', () => {
  let goOn: () => void
  let other: Node

  /** The slot of 10 s is claimed by a node that stops, and another one comes a minute later. */
  async function stall(options: ScheduleOptions, meanwhile?: (other: Node) => Promise<void>): Promise<void> {
    const node = world.node({ concurrency: 0 })
    other = world.node()
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's', ...options })
    const stopped = new Promise<void>((resolve) => (goOn = resolve))
    const trap = node.storage.intercept('queue.enqueue', async (forward) => {
      await stopped
      return await forward()
    })
    await world.advance(10 * SECOND)
    expect(trap.hits).toBe(1)
    trap.end()
    node.die()
    await meanwhile?.(other)
    await world.advance(MINUTE)
    await other.pool.start()
    await world.advance(15 * SECOND)
    const before = await world.tasks('s')
    goOn()
    await world.advance(SECOND)
    expect(await world.tasks('s')).toEqual(before)
  }

  it('fires no slot that was missed meanwhile', async () => {
    await stall({ missed: 'skip' })
    expect(world.ran.map(([id]) => Number(id.split('~')[1]) - world.start)).toEqual([70_000, 80_000])
  })

  it('fires no slot that was left out because of another', async () => {
    world.holds = true
    await stall({ missed: 'skip', overlap: 'skip' })
    expect(world.running.size).toBe(1)
  })

  it('fires no more slots than may be', async () => {
    await stall({ maxRuns: 1 })
    expect(world.ran).toHaveLength(1)
    expect(await other.scheduler.get('s')).toMatchObject({ runs: 1, state: 'ended' })
  })

  it('fires no slot after a pause', async () => {
    await stall({}, ({ scheduler }) => scheduler.pause('s'))
    expect(world.ran).toEqual([])
    expect(await world.history(other, 's')).toEqual([])
  })

  it('fires no slot after the end', async () => {
    await stall({}, ({ scheduler }) => scheduler.cancel('s'))
    expect(world.ran).toEqual([])
  })
})

it('that stops before it cancels the task before, and goes on later, cancels nothing', async () => {
  const [node, other] = [world.node({ concurrency: 0 }), world.node()]
  world.holds = true
  await other.pool.start()
  await other.scheduler.submitInterval('x', '10s', { id: 's', overlap: 'cancelRunning' })
  await world.advance(15 * SECOND)
  expect(world.running.size).toBe(1)
  // From now on only the one that stops fires.
  other.storage.intercept('records.claimDue', () => Promise.reject(new Error('not now')))
  let goOn: () => void = () => {}
  const stopped = new Promise<void>((resolve) => (goOn = resolve))
  const trap = node.storage.intercept('queue.get', async (forward) => {
    await stopped
    return await forward()
  })
  await node.pool.start()
  await world.advance(5 * SECOND)
  expect(trap.hits).toBe(1)
  await other.scheduler.pause('s')
  await world.advance(6 * SECOND)
  goOn()
  await world.advance(SECOND)
  expect(world.running.size).toBe(1)
  expect(node.storage.callsOf('queue.cancel')).toEqual([])
})

describe('a record that changes between claim and put', () => {
  /** Carries something out when the node is about to put. */
  function beforePut(node: Node, action: () => Promise<unknown>): void {
    let isDone = false
    node.storage.intercept('records.putAll', async (forward) => {
      if (!isDone && world.time >= 10 * SECOND) {
        isDone = true
        await action()
      }
      return await forward()
    })
  }

  async function firing(change: (other: Node) => Promise<unknown>): Promise<Node> {
    const [node, other] = [world.node(), world.node()]
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's' })
    beforePut(node, () => change(other))
    await world.advance(10 * SECOND)
    return other
  }

  it('before its enqueue, by a pause, fires nothing and tells of nothing', async () => {
    const [node, other] = [world.node(), world.node()]
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's' })
    const trap = node.storage.intercept('queue.enqueue', async (forward) => {
      await other.scheduler.pause('s')
      return await forward()
    })
    await world.advance(15 * SECOND)
    expect(trap.hits).toBe(1)
    expect(await world.tasks('s')).toEqual([])
    expect(await world.history(other, 's')).toEqual([])
    await other.scheduler.resume('s')
    expect(await world.history(other, 's')).toEqual([[10_000, 'paused']])
    expect(node.errors).toEqual([])
  })

  it('by a pause is paused, and has its run', async () => {
    const other = await firing(({ scheduler }) => scheduler.pause('s'))
    await world.advance(MINUTE)
    expect(await other.scheduler.get('s')).toMatchObject({ state: 'paused', runs: 1 })
    expect(await world.history(other, 's')).toEqual([[10_000, 'success']])
    expect(await world.tasks('s')).toEqual([10_000])
  })

  it('by an update of something else goes on with the change', async () => {
    const other = await firing(({ scheduler }) => scheduler.update('s', { overlap: 'skip' }))
    await world.advance(10 * SECOND)
    expect(await other.scheduler.get('s')).toMatchObject({ overlap: 'skip', runs: 2 })
    expect(await world.tasks('s')).toEqual([10_000, 20_000])
  })

  it('by an update of its slots goes on with those', async () => {
    const other = await firing(({ scheduler }) => scheduler.update('s', { every: '7s' }))
    await world.advance(10 * SECOND)
    expect(await world.tasks('s')).toEqual([10_000, 17_000])
    expect((await other.scheduler.get('s'))?.next?.getTime()).toBe(world.at(24 * SECOND))
  })

  it('by an update whose slots have this one too goes on with the new ones', async () => {
    const [node, other] = [world.node(), world.node({ concurrency: 0 })]
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's' })
    await world.advance(9990)
    // It asked for the time just before the slot, and changes the record while that one is fired.
    other.storage.fail('records.get', { kind: 'late', ms: 20 })
    node.storage.fail('records.putAll', { kind: 'late', ms: 200, times: 1 })
    // Or else it would claim the new record before it knows that the old one is gone.
    node.storage.fail('records.claimDue', {
      kind: 'late',
      ms: 500,
      when: () => world.time > 10_000 && world.time < 11_000,
    })
    const update = other.scheduler.update('s', { expression: '10,40 * * * * *' })
    await world.advance(SECOND)
    await update
    await world.advance(24 * SECOND)
    expect(await world.tasks('s')).toEqual([10_000])
    expect(await node.scheduler.get('s')).toMatchObject({ runs: 1, next: new Date(world.at(40_000)) })
  })

  it('by its end stays ended', async () => {
    const other = await firing(({ scheduler }) => scheduler.cancel('s'))
    await world.advance(MINUTE)
    expect(await other.scheduler.get('s')).toBeUndefined()
    expect(await world.tasks('s')).toEqual([10_000])
  })
})

describe('a storage', () => {
  it('that fails for a while is told of and tried again, and loses no slot', async () => {
    const node = world.node()
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's', missed: { catchUp: 100 } })
    await world.advance(15 * SECOND)
    node.storage.isDown = true
    await world.advance(25 * SECOND)
    node.storage.isDown = false
    expect(node.errors.length).toBeGreaterThan(2)
    const claims = node.storage.callsOf('records.claimDue').filter(({ fault }) => fault === 'down')
    // Less and less often, and yet it looks again within 5 s.
    expect(claims.length).toBeLessThan(15)
    await world.advance(10 * SECOND)
    expect(await world.tasks('s')).toEqual([10, 20, 30, 40, 50].map((s) => s * SECOND))
  })

  it.each(['before', 'after', 'middle', 'silent'] as const)(
    'that fails at single calls (%s) makes no slot twice and loses none',
    async (kind) => {
      const node = world.node()
      await node.pool.start()
      for (const id of ['a', 'b', 'c'])
        await node.scheduler.submitInterval('x', '30s', { id, missed: { catchUp: 100 } })
      for (const call of ['records.claimDue', 'queue.enqueue', 'records.putAll'] as const) {
        node.storage.fail(call, { kind, times: 2, when: () => world.time >= 25 * SECOND })
      }
      await world.advance(3 * MINUTE + 20 * SECOND)
      const slots = [1, 2, 3, 4, 5, 6].map((n) => n * 30 * SECOND)
      for (const id of ['a', 'b', 'c']) {
        expect(await world.tasks(id)).toEqual(slots)
        expect((await world.history(node, id)).map(([slot]) => slot)).toEqual(slots)
      }
      expect(world.ran).toHaveLength(18)
    },
  )

  describe.each(['reject', 'wait'] as const)('that is full, with overflow %s,', (overflow) => {
    const full = async (missed: Missed): Promise<{ node: Node; makeRoom: () => Promise<unknown> }> => {
      const node = world.node({ concurrency: 0, maxQueueSize: 1, overflow })
      const blocker = await node.pool.submit('blocker')
      await node.pool.start()
      await node.scheduler.submitInterval('x', '1h', { id: 's', missed, tolerance: '10m' })
      await world.advance(HOUR)
      return { node, makeRoom: () => node.pool.cancel(blocker) }
    }

    it('lets a slot wait, and fires it when there is room', async () => {
      const { node, makeRoom } = await full('skip')
      expect(await world.tasks('s')).toEqual([])
      await makeRoom()
      await world.advance(10 * SECOND)
      expect(await world.history(node, 's')).toEqual([[HOUR, 'pending']])
    })

    it('lets a slot be missed by its policy', async () => {
      const { node, makeRoom } = await full('skip')
      await world.advance(11 * MINUTE)
      await makeRoom()
      await world.advance(10 * SECOND)
      expect(await world.tasks('s')).toEqual([])
      expect(await world.history(node, 's')).toEqual([[HOUR, 'missed']])
    })

    it('leaves the slot to others when its pool is closed meanwhile', async () => {
      const { node } = await full('fireOnce')
      const closed = node.pool.close({ timeout: SECOND })
      await world.advance(5 * SECOND)
      await closed
      const other = world.node({ concurrency: 0 })
      await other.pool.start()
      const { tasks } = await world.inner.queue.list(REF, { state: 'pending', limit: 9 })
      for (const { id } of tasks) await other.pool.cancel(id)
      await world.advance(10 * SECOND)
      expect(await world.history(other, 's')).toEqual([[HOUR, 'pending']])
    })
  })
})

it('tells of the slots of a pause in their order, also beside what was triggered', async () => {
  const node = world.node({ concurrency: 0 })
  await node.pool.start()
  await node.scheduler.submitInterval('x', '10s', { id: 's' })
  await node.scheduler.pause('s')
  await world.advance(15 * SECOND)
  await node.scheduler.trigger('s')
  await world.advance(10 * SECOND)
  await node.scheduler.resume('s')
  const history = await world.history(node, 's')
  expect(history.map(([slot]) => slot)).toEqual([10_000, 15_000, 20_000])
})

describe('a task that the storage does not take', () => {
  it('is told of, and its slot is left out', async () => {
    const node = world.node()
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's' })
    await node.scheduler.submitInterval('x', '10s', { id: 'other' })
    const refusal = { code: 'PAYLOAD_TOO_LARGE', message: 'no' } as const
    const trap = node.storage.intercept('queue.enqueue', async (forward, _ref, units) => {
      const outcomes = await forward()
      return outcomes.map((outcome, index) =>
        (units[index] as { id: string }).id.startsWith('s~') ? refusal : outcome,
      )
    })
    await world.advance(10 * SECOND)
    trap.end()
    expect(node.errors).toMatchObject([{ code: 'PAYLOAD_TOO_LARGE' }])
    expect(node.told).toEqual(
      expect.arrayContaining([
        ['refused', 10_000],
        ['fired', 10_000],
      ]),
    )
    await world.advance(10 * SECOND)
    expect((await node.scheduler.history('s')).map(({ reason }) => reason)).toEqual([undefined, 'refused'])
  })

  it('because the one before it is gone, is enqueued without waiting for it', async () => {
    const node = world.node({ concurrency: 0 })
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's', overlap: 'bufferOne' })
    await world.advance(10 * SECOND)
    // Removed between the look and the enqueue.
    node.storage.intercept('queue.enqueue', async (forward) => {
      await world.inner.queue.remove(REF, [`s~${world.at(10_000)}`])
      return await forward()
    })
    await world.advance(10 * SECOND)
    expect(await world.history(node, 's')).toEqual([
      [10_000, 'gone'],
      [20_000, 'pending'],
    ])
    expect(node.errors).toEqual([])
  })
})

describe('a record that cannot be read', () => {
  it('is told of once, does not come with each lease, and stops no other', async () => {
    const node = world.node()
    const { records } = world.inner
    for (const [id, value] of [
      ['a-text', 'no JSON'],
      ['a-future', '{"v":99}'],
      ['a-zone', undefined],
    ] as const) {
      const definition = `{"task":{"kind":"","payload":"1","codec":"json","priority":2},"submit":{},"cron":"* * * * *","zone":"Mars/Olympus","overlap":"allow","missed":"skip","jitter":0,"history":9}`
      const other = `{"v":1,"h":"x","c":0,"a":0,"n":1,"r":0,"e":[]}\n${definition}`
      await records.put(TENANT, keyOf(id), value ?? other, { dueIn: 0 })
    }
    const before = (await records.get(TENANT, keyOf('a-text')))?.version ?? NaN
    await node.pool.start()
    await node.scheduler.submitInterval('x', '1s', { id: 's' })
    await world.advance(MINUTE)
    expect(node.errors.map((error) => (error as { code: string }).code)).toEqual(
      Array(3).fill('STORAGE_FORMAT'),
    )
    expect(await world.tasks('s')).toHaveLength(60)
    // Claimed, and set aside: two steps, and nothing more.
    expect((await records.get(TENANT, keyOf('a-text')))?.version).toBe(before + 2)
    await expect(node.scheduler.get('a-future')).rejects.toMatchObject({ code: 'STORAGE_FORMAT' })
    expect((await node.scheduler.list()).schedules.map(({ id }) => id)).toEqual(['s'])
    await world.advance(10 * MINUTE)
    expect(node.errors).toHaveLength(3)
    // Another version of the library may mend it, and it can be ended.
    await records.put(TENANT, keyOf('a-text'), 'no JSON either', { dueIn: 0 })
    await world.advance(2 * SECOND)
    expect(node.errors).toHaveLength(4)
    await node.scheduler.cancel('a-future')
    expect(await records.get(TENANT, keyOf('a-future'))).toBeUndefined()
  })
})

describe('a record of which a part is wrong', () => {
  const STATE = { v: 1, h: 'x', c: 0, a: 0, n: 1, r: 0, e: [] }
  const TASK = { kind: '', payload: '1', codec: 'json', priority: 2 }
  const RULES = { submit: {}, every: 1000, overlap: 'allow', missed: 'skip', jitter: 0, history: 9 }

  it.each<[string, state: object, rules: object, task?: object]>([
    ['anchor', { a: undefined }, {}],
    ['next slot', { n: 1e300 }, {}],
    ['runs', { r: -1 }, {}],
    ['history', { e: [[1, 99]] }, {}],
    ['submit', {}, { submit: undefined }],
    ['tags', {}, { submit: { tags: 'x' } }],
    ['interval', {}, { every: 0 }],
    ['interval', {}, { every: 1 }],
    ['interval and expression', {}, { cron: '* * * * *' }],
    ['end', {}, { end: null }],
    ['overlap', {}, { overlap: 'queue' }],
    ['missed', {}, { missed: null }],
    ['jitter', {}, { jitter: '5m' }],
    ['priority', {}, {}, { priority: 1.5 }],
    ['payload', {}, {}, { payload: 7 }],
  ])('is told of and stops no other: its %s', async (_, state, rules, task = {}) => {
    const text = `${JSON.stringify({ ...STATE, ...state })}\n${JSON.stringify({ ...RULES, task: { ...TASK, ...task }, ...rules })}`
    await world.inner.records.put(TENANT, keyOf('a-bad'), text, { dueIn: 0 })
    const node = world.node()
    await node.pool.start()
    await node.scheduler.submitInterval('x', '1s', { id: 's' })
    await world.advance(20 * SECOND)
    expect(await world.tasks('s')).toHaveLength(20)
    expect(await world.tasks('a-bad')).toEqual([])
    expect(node.errors).toMatchObject([{ code: 'STORAGE_FORMAT' }])
    expect((await node.scheduler.list()).schedules.map(({ id }) => id)).toEqual(['s'])
  })
})

describe("a host's clock", () => {
  it.each([
    ['an hour behind', -HOUR],
    ['an hour ahead', HOUR],
  ])('%s fires nothing early, late or twice', async (_, skew) => {
    const clock = new ManualClock({ now: world.start + skew })
    const node = world.node({ clock })
    const move = async (ms: number): Promise<void> => {
      for (let step = 0; step < ms; step += 100) {
        await world.advance(100)
        await clock.advanceAsync(100)
      }
    }
    await node.pool.start()
    await node.scheduler.submitCron('x', '*/5 * * * * *', { id: 's' })
    await move(12 * SECOND)
    expect(await world.tasks('s')).toEqual([5000, 10_000])
    clock.step(-skew * 2)
    await move(10 * SECOND)
    expect(await world.tasks('s')).toEqual([5000, 10_000, 15_000, 20_000])
    const late = world.ran.map(([id, at]) => at - (Number(id.split('~')[1]) - world.start))
    expect(Math.min(...late)).toBeGreaterThanOrEqual(0)
    expect(Math.max(...late)).toBeLessThanOrEqual(200)
    await node.pool.close({ timeout: 0 })
  })

  it('that is set back or ahead in the middle changes nothing', async () => {
    // Here the storage reads the host's clock too, as in memory and SQLite; only slots and what is put is by wall time.
    const node = world.node()
    await node.pool.start()
    await node.scheduler.submitInterval('x', '10s', { id: 's' })
    await world.advance(25 * SECOND)
    world.clock.step(-HOUR)
    await world.advance(HOUR - 10 * SECOND)
    // Until the hour has come again there is no new slot, and none of the old ones a second time.
    expect(await world.tasks('s')).toEqual([10_000, 20_000])
    await world.advance(30 * SECOND)
    expect(await world.tasks('s')).toEqual([10_000, 20_000, 30_000, 40_000])
    expect(world.ran).toHaveLength(4)
  })
})

it('tells nobody of another queue', async () => {
  const node = world.node()
  await node.pool.start()
  const { TaskPool } = await import('@neotask/core')
  const { TaskScheduler } = await import('./task-scheduler.js')
  const pool = new TaskPool<string>({
    storage: world.inner,
    clock: world.clock,
    concurrency: 0,
    queue: 'default2',
  })
  const other = new TaskScheduler(pool)
  await other.submitInterval('x', '1s', { id: 's' })
  await world.advance(5 * SECOND)
  expect(node.told).toEqual([])
  expect(await node.scheduler.get('s')).toBeUndefined()
  await pool.start()
  await world.advance(5 * SECOND)
  expect(await world.inner.queue.counts({ ...REF, queue: 'default2' })).toMatchObject({ pending: 6 })
  await pool.close()
})
