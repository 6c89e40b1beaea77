/** P: where a task is. Every step of the table of transitions is a case, whatever takes it. */
import assert from 'node:assert/strict'
import { TASK_STATES, TRANSITIONS } from '../task.js'
import type { TaskState } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { DAY, HOUR, idsOf, SECOND, SHORT_TTL } from './sketch.js'

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
      await bench.advance(5)
      await way.step(bench, id)
      await bench.stands(id, to)
      const after = await bench.get(id)
      assert.ok(after.since > (before?.since ?? 0), '`since` does not say when it entered')
    })
  }
}
