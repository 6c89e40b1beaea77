/**
 * P: where a task is. Every step of the table of transitions is a case, whatever takes it; then the order in
 * which ready tasks are claimed, and which steps keep a task's place in it.
 */
import assert from 'node:assert/strict'
import { TASK_STATES, TRANSITIONS } from '../task.js'
import type { TaskState } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { DAY, HOUR, idsOf, MINUTE, SECOND, SHORT_TTL } from './sketch.js'

/** One way from a state to another: how the task comes to the first, and what takes it to the second. */
interface Way {
  /** How the sentence ends: "a running task becomes pending …". */
  readonly how: string
  readonly from: (bench: Bench) => Promise<string>
  readonly step: (bench: Bench, id: string) => Promise<unknown>
}

const made =
  (state: TaskState, task = {}) =>
  (bench: Bench) =>
    bench.makeIn(state, task)
const nothing = () => Promise.resolve('new')
const operation =
  (name: 'cancel' | 'promote' | 'retry' | 'complete' | 'revoke') =>
  async (bench: Bench, id: string): Promise<void> =>
    assert.equal(await bench.operate(name, id), 'done')
const passed = async (bench: Bench): Promise<void> => {
  await bench.advance(2 * SECOND)
  await bench.drain()
}
const cancelGroup = async (bench: Bench): Promise<void> => {
  await bench.storage.queue.setGroup(bench.ref, 'run', { cancelled: true })
  await bench.drain()
}
const settled =
  (outcome: Parameters<Awaited<ReturnType<Bench['hand']>>['settle']>[1], details = {}) =>
  async (bench: Bench, id: string): Promise<void> =>
    (await bench.hand()).settle(id, outcome, details)
const parentEnds = (outcome: 'success' | 'failed') => async (bench: Bench) => {
  const hand = await bench.hand()
  assert.deepEqual(idsOf(await hand.claim(1)), ['parent'])
  await hand.settle('parent', outcome)
}
const childOf =
  (task = {}) =>
  async (bench: Bench): Promise<string> => {
    await bench.add({ id: 'parent', priority: 0 })
    return bench.makeIn('blocked', { after: { ids: ['parent'], on: 'success' }, ...task })
  }
const heldByMortal = (options: { start: boolean; maxReclaims: number }) => async (bench: Bench) => {
  await bench.add('lost')
  const node = await bench.node({ ttl: SHORT_TTL, maxReclaims: options.maxReclaims })
  await node.claim(1)
  if (options.start) await node.start('lost')
  return 'lost'
}
const sessionLapses = (bench: Bench) => bench.lose()
const suspend = async (bench: Bench): Promise<string> => {
  await bench.makeIn('scheduled', { id: 'other', delay: DAY })
  const id = await bench.makeIn('running')
  await (
    await bench.hand()
  ).settle(id, 'suspended', { after: { ids: ['other'], on: 'final' }, until: SECOND })
  return id
}

const expiring = { expiresIn: SECOND }
const grouped = { group: { id: 'run' } }

/** The ways of every step. A step without one, or a way without a step, fails when the suite is declared. */
const WAYS: Readonly<Record<string, Readonly<Record<string, Way>>>> = {
  'created-pending': {
    enqueue: { how: 'by enqueue', from: nothing, step: (bench) => bench.add('new') },
    after: {
      how: 'by enqueue when all its parents are final',
      from: async (bench) => {
        await bench.makeIn('success', { id: 'parent' })
        return 'new'
      },
      step: (bench) => bench.add({ id: 'new', after: { ids: ['parent'], on: 'success' } }),
    },
  },
  'created-scheduled': {
    delay: {
      how: 'by enqueue with a delay',
      from: nothing,
      step: (bench) => bench.add({ id: 'new', delay: HOUR }),
    },
    'run-at': {
      how: 'by enqueue with a later instant',
      from: nothing,
      step: async (bench) => bench.add({ id: 'new', runAt: (await bench.time()) + HOUR }),
    },
  },
  'created-blocked': {
    after: {
      how: 'by enqueue after a task that is not final',
      from: async (bench) => {
        await bench.makeIn('pending', { id: 'parent' })
        return 'new'
      },
      step: (bench) => bench.add({ id: 'new', after: { ids: ['parent'], on: 'success' } }),
    },
    hold: {
      how: 'by enqueue with hold',
      from: nothing,
      step: (bench) => bench.add({ id: 'new', hold: true }),
    },
  },
  'created-cancelled': {
    after: {
      how: 'by enqueue after a task that failed',
      from: async (bench) => {
        await bench.makeIn('failed', { id: 'parent' })
        return 'new'
      },
      step: (bench) => bench.add({ id: 'new', after: { ids: ['parent'], on: 'success' } }),
    },
  },
  'pending-running': {
    claim: { how: 'by a claim', from: made('pending'), step: async (bench) => (await bench.hand()).claim(1) },
  },
  'pending-cancelled': {
    cancel: { how: 'by cancel', from: made('pending'), step: operation('cancel') },
    expiry: { how: 'when it expires', from: made('pending', expiring), step: passed },
    group: { how: 'by its group', from: made('pending', grouped), step: cancelGroup },
  },
  'scheduled-pending': {
    due: { how: 'when it is due', from: made('scheduled', { delay: SECOND }), step: passed },
    promote: { how: 'by promote', from: made('scheduled'), step: operation('promote') },
  },
  'scheduled-cancelled': {
    cancel: { how: 'by cancel', from: made('scheduled'), step: operation('cancel') },
    expiry: { how: 'when it expires', from: made('scheduled', expiring), step: passed },
    group: { how: 'by its group', from: made('scheduled', grouped), step: cancelGroup },
  },
  'blocked-pending': {
    release: { how: 'when its last parent ends', from: childOf(), step: parentEnds('success') },
    timeout: { how: 'when its suspension times out', from: suspend, step: passed },
  },
  'blocked-scheduled': {
    release: {
      how: 'with a delay that starts at its release',
      from: childOf({ delay: HOUR }),
      step: parentEnds('success'),
    },
  },
  'blocked-success': {
    complete: { how: 'by complete', from: made('blocked', { hold: true }), step: operation('complete') },
  },
  'blocked-cancelled': {
    cancel: { how: 'by cancel', from: made('blocked'), step: operation('cancel') },
    dependency: {
      how: 'when a parent fails that had to succeed',
      from: childOf(),
      step: parentEnds('failed'),
    },
    expiry: { how: 'when it expires', from: made('blocked', expiring), step: passed },
    group: {
      how: 'by its group when held',
      from: made('blocked', { ...grouped, hold: true }),
      step: cancelGroup,
    },
  },
  'running-success': {
    settle: { how: 'by its settlement', from: made('running'), step: settled('success') },
  },
  'running-failed': {
    settle: { how: 'by its settlement', from: made('running'), step: settled('failed') },
    poison: {
      how: 'when it is reclaimed too often',
      from: heldByMortal({ start: true, maxReclaims: 0 }),
      step: sessionLapses,
    },
  },
  'running-cancelled': {
    settle: { how: 'by its settlement', from: made('running'), step: settled('cancelled') },
    cancel: { how: 'by cancel', from: made('running'), step: operation('cancel') },
    expiry: { how: 'when it expires before it is started', from: made('running', expiring), step: passed },
    group: { how: 'by its group', from: made('running', grouped), step: cancelGroup },
  },
  'running-skipped': {
    settle: { how: 'by its settlement', from: made('running'), step: settled('skipped') },
  },
  'running-scheduled': {
    retry: { how: 'to be retried', from: made('running'), step: settled('retry', { in: HOUR }) },
    suspend: {
      how: 'when suspended for a time',
      from: made('running'),
      step: settled('suspended', { until: HOUR }),
    },
  },
  'running-pending': {
    release: { how: 'when released', from: made('running'), step: settled('released') },
    reclaim: {
      how: 'when its session lapses',
      from: heldByMortal({ start: false, maxReclaims: 3 }),
      step: sessionLapses,
    },
    'reclaim-started': {
      how: 'when its session lapses after its start',
      from: heldByMortal({ start: true, maxReclaims: 3 }),
      step: sessionLapses,
    },
    revoke: { how: 'by revoke', from: made('running'), step: operation('revoke') },
    end: {
      how: 'when its session ends',
      from: made('running'),
      step: async (bench) => bench.storage.session.end((await bench.hand()).session, 100),
    },
  },
  'running-blocked': {
    suspend: {
      how: 'when suspended after another task',
      from: async (bench) => {
        await bench.makeIn('scheduled', { id: 'other' })
        return bench.makeIn('running')
      },
      step: settled('suspended', { after: { ids: ['other'], on: 'final' } }),
    },
  },
  'failed-pending': { retry: { how: 'by retry', from: made('failed'), step: operation('retry') } },
  'cancelled-pending': { retry: { how: 'by retry', from: made('cancelled'), step: operation('retry') } },
}

export function placeRules(rule: Rule): void {
  for (const state of TASK_STATES) {
    rule(`P-${state}`, `a ${state} task stands there and nowhere else`, async (bench) => {
      for (const other of TASK_STATES) if (other !== state) await bench.makeIn(other)
      const id = await bench.makeIn(state, { id: 'this' })
      await bench.stands(id, state)
      const { since, createdAt } = await bench.get(id)
      assert.ok(since >= createdAt)
    })
  }
  for (const [from, targets] of Object.entries(TRANSITIONS)) {
    for (const to of targets) stepRules(rule, from, to)
  }
  orderRules(rule)
}

function stepRules(rule: Rule, from: string, to: TaskState): void {
  const ways = WAYS[`${from}-${to}`]
  if (!ways) throw new Error(`the suite knows no way from ${from} to ${to}`)
  for (const [name, way] of Object.entries(ways)) {
    const subject = from === 'created' ? 'a new task becomes' : `a ${from} task becomes`
    rule(`P-${from}-${to}-${name}`, `${subject} ${to} ${way.how}`, async (bench) => {
      const id = await way.from(bench)
      const before = from === 'created' ? undefined : await bench.get(id)
      if (before) await bench.stands(id, from as TaskState)
      await bench.advance(1)
      await way.step(bench, id)
      await bench.stands(id, to)
      const after = await bench.get(id)
      assert.ok(after.since > (before?.since ?? 0), '`since` does not say when it entered')
    })
  }
}

function orderRules(rule: Rule): void {
  rule(
    'P1',
    'ready tasks are claimed by priority, smaller first, and by age within a priority',
    async (bench) => {
      await bench.add(
        'b1',
        { id: 'd1', priority: 1000 },
        'b2',
        { id: 'a1', priority: 0 },
        { id: 'c1', priority: 999 },
      )
      await bench.add(
        { id: 'a2', priority: 0 },
        'b3',
        { id: 'c2', priority: 999 },
        { id: 'd2', priority: 1000 },
      )
      const node = await bench.node()
      assert.deepEqual(idsOf(await node.claim(4)), ['a1', 'a2', 'b1', 'b2'])
      assert.deepEqual(idsOf(await node.claim(9)), ['b3', 'c1', 'c2', 'd1', 'd2'])
    },
  )

  rule(
    'P2',
    'a task that is released, revoked, reclaimed or given back at an end keeps its place',
    async (bench) => {
      await bench.add('released', 'revoked', 'reclaimed', 'started', 'ended')
      const lost = await bench.node({ ttl: SHORT_TTL })
      const hand = await bench.node()
      await hand.claim(2)
      await lost.claim(2)
      await lost.start('started')
      const ends = await bench.node()
      await ends.claim(1)
      await bench.add('later')
      await bench.storage.session.end(ends.session, 10)
      await bench.lose(lost)
      await bench.operate('revoke', 'revoked')
      await hand.settle('released', 'released')
      const order = idsOf(await (await bench.hand()).claim(9))
      assert.deepEqual(order, ['released', 'revoked', 'reclaimed', 'started', 'ended', 'later'])
    },
  )

  rule(
    'P3',
    'a task that is promoted, due, released by its parents or retried takes a new place',
    async (bench) => {
      const hand = await bench.hand()
      await bench.makeIn('failed', { id: 'retried', priority: 2 })
      await bench.makeIn('scheduled', { id: 'promoted' })
      await bench.makeIn('scheduled', { id: 'due', delay: SECOND })
      await bench.add({ id: 'parent', priority: 0 }, { id: 'child', after: { ids: ['parent'], on: 'final' } })
      await bench.add('first')
      await bench.operate('promote', 'promoted')
      await hand.claim(1)
      await hand.settle('parent', 'success')
      await bench.operate('retry', 'retried')
      await bench.advance(2 * SECOND)
      assert.deepEqual(idsOf(await hand.claim(9)), ['first', 'promoted', 'child', 'retried', 'due'])
    },
  )

  rule('P4', 'tasks become ready in the order in which they are due', async (bench) => {
    await bench.add({ id: 'c', delay: 300 }, { id: 'a', delay: 100 }, { id: 'b', delay: 200 })
    await bench.advance(SECOND)
    assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), ['a', 'b', 'c'])
  })

  rule(
    'P5',
    'a scheduled task is never claimed before it is due',
    async (bench) => {
      await bench.add({ id: 'delayed', delay: MINUTE })
      await bench.advance(MINUTE / 2)
      const hand = await bench.hand()
      await bench.drain()
      assert.deepEqual(await hand.claim(1), [])
      assert.equal(await bench.stateOf('delayed'), 'scheduled')
      await bench.advance(MINUTE / 2)
      assert.deepEqual(idsOf(await hand.claim(1)), ['delayed'])
    },
    { moves: MINUTE },
  )

  rule(
    'P6',
    'a task of a kind that the session does not serve stands aside and lets others pass',
    async (bench) => {
      await bench.add({ id: 'rare', kind: 'rare', priority: 0 }, 'plain')
      const hand = await bench.hand()
      assert.deepEqual(idsOf(await hand.claim(2)), ['plain'])
      const { state, lane } = await bench.get('rare')
      assert.deepEqual({ state, lane }, { state: 'pending', lane: 'kind:rare' })
      await bench.stands('rare', 'pending')
    },
  )

  rule(
    'P7',
    'a task that stands aside is claimed, at its place, by a session that serves its kind',
    async (bench) => {
      await bench.add(
        'a',
        { id: 'b', kind: 'rare' },
        'c',
        { id: 'd', kind: 'rare' },
        { id: 'e', kind: 'rare', priority: 1 },
      )
      const hand = await bench.hand()
      await hand.claim(1)
      await hand.settle('a', 'released')
      const both = await bench.node({ kinds: ['job', 'rare'] })
      assert.deepEqual(idsOf(await both.claim(9)), ['e', 'a', 'b', 'c', 'd'])
    },
  )

  rule(
    'P8',
    'a task that stands aside can be cancelled, removed, and moved to another priority',
    async (bench) => {
      await bench.add(...['a', 'b', 'c', 'd'].map((id) => ({ id, kind: 'rare' })))
      await (await bench.hand()).claim(9)
      assert.equal(await bench.operate('cancel', 'a'), 'done')
      assert.equal(await bench.operate('remove', 'b'), 'done')
      assert.deepEqual(await bench.storage.queue.reprioritize(bench.ref, ['d'], 0), ['done'])
      assert.deepEqual(await bench.states('a', 'b', 'c', 'd'), ['cancelled', 'unknown', 'pending', 'pending'])
      assert.deepEqual(idsOf(await (await bench.node({ kinds: ['rare'] })).claim(9)), ['d', 'c'])
    },
  )

  rule('P9', 'whatever happens to a task on its way, its priority stays', async (bench) => {
    const urgent = { priority: 1 }
    await bench.add({ ...urgent, id: 'delayed', delay: SECOND }, { ...urgent, id: 'promoted', delay: HOUR })
    await bench.add(
      { id: 'parent', priority: 0 },
      { ...urgent, id: 'child', after: { ids: ['parent'], on: 'final' } },
    )
    const names = ['released', 'retried', 'failed', 'suspended', 'revoked']
    await bench.add(...names.map((id) => ({ ...urgent, id })), 'plain')
    const hand = await bench.hand()
    await hand.claim(6)
    await hand.settle('parent', 'success')
    await hand.settle('released', 'released')
    await hand.settle('retried', 'retry', { in: SECOND })
    await hand.settle('suspended', 'suspended', { until: SECOND })
    await hand.settle('failed', 'failed')
    await bench.operate('retry', 'failed')
    await bench.operate('revoke', 'revoked')
    await bench.operate('promote', 'promoted')
    await bench.advance(2 * SECOND)
    const claimed = await hand.claim(99)
    assert.deepEqual(idsOf(claimed.slice(0, -1)).sort(), ['child', 'delayed', 'promoted', ...names].sort())
    for (const task of claimed.slice(0, -1)) assert.equal(task.priority, 1)
    assert.equal(claimed.at(-1)?.id, 'plain')
  })
}
