/** Q: what a queue tells of itself (get, list, counts, history, errors), and its pause. */
import assert from 'node:assert/strict'
import { TASK_STATES } from '../task.js'
import type { TaskState } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { DAY, HOUR, ids, idsOf, MINUTE, SECOND } from './sketch.js'

/** Makes seven tasks in a state, one after the other in storage time. */
async function seven(bench: Bench, state: TaskState): Promise<string[]> {
  const made: string[] = []
  for (const id of ids(state, 7)) {
    await bench.makeIn(state, state === 'blocked' ? { id, hold: true } : { id })
    await bench.advance(2)
    made.push(id)
  }
  return made
}

const FINAL_STATES = ['success', 'failed', 'cancelled', 'skipped'] as const

export function queueRules(rule: Rule): void {
  rule('Q1', 'get answers for each id, in order, and undefined for the unknown', async (bench) => {
    await bench.add('a', 'b')
    const records = await bench.storage.queue.get(bench.ref, ['b', 'nobody', 'a', 'b'])
    assert.deepEqual(
      records.map((record) => record?.id),
      ['b', undefined, 'a', 'b'],
    )
    assert.deepEqual(await bench.storage.queue.get(bench.ref, []), [])
  })

  rule('Q2', 'a record tells everything that was given at enqueue', async (bench) => {
    const given = { kind: 'mail', payload: '{"to":1}', codec: 'json', priority: 3, options: '{"limit":5}' }
    await bench.add({
      id: 'task',
      ...given,
      group: { id: 'run', exempt: true },
      delay: MINUTE,
      expiresIn: HOUR,
    })
    const record = await bench.get('task')
    const { kind, payload, codec, priority, options, createdAt } = record
    assert.deepEqual({ kind, payload, codec, priority, options }, given)
    assert.deepEqual({ ...record.group }, { id: 'run', exempt: true })
    assert.equal(record.dueAt, createdAt + MINUTE)
    assert.equal(record.deadline, createdAt + HOUR)
    assert.equal(record.since, createdAt)
    const { started, settledToken, attempts, reclaims, held, result, error, reason } = record
    assert.deepEqual(
      { started, settledToken, attempts, reclaims, held, result, error, reason },
      {
        started: false,
        settledToken: 0,
        attempts: 0,
        reclaims: 0,
        held: false,
        result: undefined,
        error: undefined,
        reason: undefined,
      },
    )
  })

  rule('Q3', 'a running task tells its session, its node and whether it was started', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const before = await bench.get(id)
    assert.deepEqual([before.session, before.node, before.started], [hand.session, 'node-1', false])
    await hand.start(id)
    assert.equal((await bench.get(id)).started, true)
    await hand.settle(id, 'released')
    const after = await bench.get(id)
    assert.deepEqual([after.session, after.node, after.started], [undefined, undefined, false])
  })

  rule('Q4', 'a blocked task tells its parents and which of them are not final yet', async (bench) => {
    await bench.add('a', 'b', { id: 'child', after: { ids: ['a', 'b'], on: 'final' } })
    assert.deepEqual([...((await bench.get('child')).waitsFor ?? [])].sort(), ['a', 'b'])
    await bench.operate('cancel', 'a')
    const { after, waitsFor } = await bench.get('child')
    assert.deepEqual({ on: after?.on, ids: [...(after?.ids ?? [])].sort() }, { on: 'final', ids: ['a', 'b'] })
    assert.deepEqual(waitsFor, ['b'])
  })

  rule('Q21', 'a task that was held is told to be so while it is blocked only', async (bench) => {
    const held = await bench.makeIn('blocked', { hold: true })
    assert.equal((await bench.get(held)).held, true)
    assert.equal(await bench.operate('complete', held), 'done')
    assert.equal((await bench.get(held)).held, false)
    const cancelled = await bench.makeIn('blocked', { hold: true })
    await bench.operate('cancel', cancelled)
    assert.equal((await bench.get(cancelled)).held, false)
  })

  for (const state of TASK_STATES) {
    rule(`Q-list-${state}`, `pages of ${state} tasks hold each of them once`, async (bench) => {
      const made = await seven(bench, state)
      for (const limit of [1, 2, 3, 7, 500]) {
        const listed = await bench.list({ state, limit })
        assert.deepEqual(idsOf(listed).sort(), made)
      }
      const first = await bench.storage.queue.list(bench.ref, { state, limit: 3 })
      assert.equal(first.tasks.length, 3)
      assert.ok(first.cursor !== undefined)
    })
  }

  rule('Q5', 'pending tasks are listed in the order in which they will run', async (bench) => {
    await bench.add(
      'c',
      { id: 'd', priority: 3 },
      { id: 'a', priority: 0 },
      { id: 'b', priority: 0 },
      { id: 'e', priority: 9 },
    )
    for (const limit of [2, 100]) {
      assert.deepEqual(idsOf(await bench.list({ state: 'pending', limit })), ['a', 'b', 'c', 'd', 'e'])
    }
  })

  rule('Q6', 'scheduled tasks are listed in the order in which they are due', async (bench) => {
    await bench.add(
      { id: 'c', delay: 3 * HOUR },
      { id: 'a', delay: HOUR, priority: 9 },
      { id: 'b', delay: 2 * HOUR },
    )
    for (const limit of [1, 100]) {
      assert.deepEqual(idsOf(await bench.list({ state: 'scheduled', limit })), ['a', 'b', 'c'])
    }
  })

  for (const state of FINAL_STATES) {
    rule(`Q-newest-${state}`, `${state} tasks are listed newest first`, async (bench) => {
      const made = await seven(bench, state)
      for (const limit of [2, 100]) {
        assert.deepEqual(idsOf(await bench.list({ state, limit })), [...made].reverse())
      }
    })
  }

  rule('Q7', 'tasks that stand aside are listed as pending too', async (bench) => {
    await bench.add({ id: 'rare', kind: 'rare' }, 'a', 'b', { id: 'paused', group: { id: 'run' } })
    await bench.storage.queue.setGroup(bench.ref, 'run', { paused: true })
    const hand = await bench.hand()
    await hand.claim(1)
    await hand.settle('a', 'released')
    for (const limit of [1, 100]) {
      assert.deepEqual(idsOf(await bench.list({ state: 'pending', limit })).sort(), [
        'a',
        'b',
        'paused',
        'rare',
      ])
    }
    await bench.census()
  })

  rule(
    'Q8',
    'a page ends before its bytes are more than asked for, but never without a first task',
    async (bench) => {
      for (const id of ids('t', 5))
        await bench.add({ id, payload: id === 't0000' ? 'x'.repeat(9000) : 'x'.repeat(1000) })
      const { tasks } = await bench.storage.queue.list(bench.ref, {
        state: 'pending',
        limit: 100,
        bytes: 2500,
      })
      assert.deepEqual(idsOf(tasks), ['t0000'])
      for (const bytes of [1, 2500]) {
        assert.deepEqual(idsOf(await bench.list({ state: 'pending', bytes })), ids('t', 5))
      }
      await bench.operate('cancel', 't0000')
      const next = await bench.storage.queue.list(bench.ref, { state: 'pending', limit: 100, bytes: 2500 })
      assert.deepEqual(idsOf(next.tasks), ['t0001', 't0002'])
    },
  )

  rule('Q9', 'the bytes of results count for a page as those of payloads do', async (bench) => {
    const hand = await bench.hand()
    for (const id of ids('t', 3)) {
      await bench.add(id)
      await hand.claim(1)
      await hand.settle(id, 'success', { result: 'x'.repeat(1000) })
    }
    const { tasks } = await bench.storage.queue.list(bench.ref, { state: 'success', limit: 100, bytes: 1500 })
    assert.equal(tasks.length, 1)
  })

  rule('Q10', 'a list may be narrowed to a kind and to a group, on all pages together', async (bench) => {
    for (const id of ids('t', 12)) {
      const number = Number(id.slice(1))
      await bench.add({
        id,
        kind: number % 2 ? 'odd' : 'even',
        ...(number % 3 === 0 && { group: { id: 'run' } }),
      })
    }
    const even = await bench.list({ state: 'pending', kind: 'even', limit: 2 })
    assert.deepEqual(idsOf(even), ['t0000', 't0002', 't0004', 't0006', 't0008', 't0010'])
    const grouped = await bench.list({ state: 'pending', group: 'run', limit: 2 })
    assert.deepEqual(idsOf(grouped), ['t0000', 't0003', 't0006', 't0009'])
    assert.deepEqual(idsOf(await bench.list({ state: 'pending', kind: 'odd', group: 'run', limit: 1 })), [
      't0003',
      't0009',
    ])
    assert.deepEqual(await bench.list({ state: 'success', kind: 'odd' }), [])
  })

  rule(
    'Q11',
    'a cursor stays good while tasks of the pages before it go and new ones come',
    async (bench) => {
      await bench.add(...ids('t', 6))
      const first = await bench.storage.queue.list(bench.ref, { state: 'pending', limit: 2 })
      assert.deepEqual(idsOf(first.tasks), ['t0000', 't0001'])
      await bench.storage.queue.cancel(bench.ref, ['t0000', 't0001'])
      await bench.add({ id: 'urgent', priority: 0 })
      const rest = await bench.list({ state: 'pending', limit: 2, cursor: first.cursor })
      assert.deepEqual(idsOf(rest), ['t0002', 't0003', 't0004', 't0005'])
    },
  )

  rule('Q12', 'counts tell each state, the prefetched ones and the pause', async (bench) => {
    for (const state of TASK_STATES) await bench.makeIn(state, state === 'blocked' ? { hold: true } : {})
    const id = await bench.makeIn('running')
    await (await bench.hand()).start(id)
    await bench.storage.queue.pause(bench.ref, true)
    assert.deepEqual(
      { ...(await bench.storage.queue.counts(bench.ref)) },
      {
        pending: 1,
        scheduled: 1,
        blocked: 1,
        running: 2,
        success: 1,
        failed: 1,
        cancelled: 1,
        skipped: 1,
        prefetched: 1,
        paused: true,
      },
    )
  })

  rule('Q13', 'an unknown queue counts nothing and lists nothing', async (bench) => {
    assert.equal((await bench.census()).size, 0)
    const { prefetched, paused } = await bench.storage.queue.counts(bench.ref)
    assert.deepEqual({ prefetched, paused }, { prefetched: 0, paused: false })
    assert.deepEqual(await bench.storage.queue.errors(bench.ref, { limit: 10 }), [])
    assert.deepEqual(await bench.storage.queue.history(bench.ref, { from: 0, to: 8.64e15 }), [])
  })

  rule(
    'Q14',
    'history tells what happened in each minute, oldest first',
    async (bench) => {
      const start = await bench.time()
      for (const state of FINAL_STATES) await bench.makeIn(state)
      const id = await bench.makeIn('running')
      await (await bench.hand()).settle(id, 'retry')
      await bench.advance(MINUTE)
      await bench.makeIn('success')
      const whole = await bench.storage.queue.history(bench.ref, { from: start - MINUTE, to: start + HOUR })
      const total = { enqueued: 0, success: 0, failed: 0, cancelled: 0, skipped: 0, retried: 0 }
      for (const bucket of whole) {
        assert.equal(bucket.at % MINUTE, 0)
        for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += bucket[key]
      }
      assert.deepEqual(total, { enqueued: 6, success: 2, failed: 1, cancelled: 1, skipped: 1, retried: 1 })
      const times = whole.map((bucket) => bucket.at)
      assert.deepEqual(
        times,
        [...new Set(times)].sort((a, b) => a - b),
      )
      assert.ok(times.length >= 2, 'two minutes are one bucket')
      const later = await bench.storage.queue.history(bench.ref, { from: start + MINUTE, to: start + HOUR })
      assert.deepEqual(
        later.reduce((sum, bucket) => sum + bucket.enqueued, 0),
        1,
      )
    },
    { moves: MINUTE },
  )

  rule(
    'Q15',
    'history is kept for 24 h',
    async (bench) => {
      const start = await bench.time()
      await bench.makeIn('success')
      await bench.advance(DAY - 2 * MINUTE)
      const range = { from: 0, to: start + 10 * DAY }
      const { success, failed } = { success: { age: DAY, count: 10 }, failed: { age: DAY, count: 10 } }
      await bench.prune({ success, failed })
      assert.equal((await bench.storage.queue.history(bench.ref, range))[0]?.success, 1)
      await bench.advance(5 * MINUTE)
      await bench.prune({ success, failed })
      assert.deepEqual(await bench.storage.queue.history(bench.ref, range), [])
    },
    { moves: DAY },
  )

  rule('Q16', 'errors groups failed tasks by fingerprint, largest group first', async (bench) => {
    const hand = await bench.hand()
    for (const id of ids('t', 6)) {
      await bench.add(id)
      await hand.claim(1)
      const fingerprint = id < 't0003' ? 'often' : id < 't0005' ? 'twice' : 'once'
      await hand.settle(id, 'failed', { fingerprint, error: `error of ${id}` })
      await bench.advance(5)
    }
    const groups = await bench.storage.queue.errors(bench.ref, { limit: 10 })
    assert.deepEqual(
      groups.map(({ fingerprint, count }) => [fingerprint, count]),
      [
        ['often', 3],
        ['twice', 2],
        ['once', 1],
      ],
    )
    for (const group of groups) {
      const member = await bench.get(group.id)
      assert.deepEqual([member.state, member.error], ['failed', group.error])
    }
    assert.equal(groups[2]?.lastAt, (await bench.get('t0005')).since)
    assert.deepEqual(
      (await bench.storage.queue.errors(bench.ref, { limit: 1 })).map((group) => group.count),
      [3],
    )
  })

  rule(
    'Q17',
    'a failed task that is retried or removed belongs to no group of errors any more',
    async (bench) => {
      const [a, b] = [await bench.makeIn('failed'), await bench.makeIn('failed')]
      await bench.operate('retry', a)
      await bench.operate('remove', b)
      assert.deepEqual(await bench.storage.queue.errors(bench.ref, { limit: 10 }), [])
    },
  )

  rule('Q18', 'a paused queue gives out nothing, to any session, and says so', async (bench) => {
    await bench.add('a')
    const [one, other] = [await bench.node(), await bench.node()]
    await bench.storage.queue.pause(bench.ref, true)
    for (const node of [one, other]) {
      const reply = await node.work({ want: 5 })
      assert.deepEqual([reply.status, reply.claimed, reply.paused], ['ok', [], true])
    }
    await bench.storage.queue.pause(bench.ref, false)
    assert.equal((await one.work({ want: 0 })).paused, false)
    assert.deepEqual(idsOf(await one.claim(5)), ['a'])
  })

  rule('Q19', 'a paused queue takes tasks, settlements and operations as ever', async (bench) => {
    const id = await bench.makeIn('running')
    await bench.storage.queue.pause(bench.ref, true)
    const hand = await bench.hand()
    await hand.start(id)
    await hand.settle(id, 'success')
    await bench.add('new')
    assert.equal(await bench.operate('cancel', 'new'), 'done')
    assert.deepEqual(await bench.states(id, 'new'), ['success', 'cancelled'])
  })

  rule('Q20', 'delays go on during a pause', async (bench) => {
    await bench.add({ id: 'delayed', delay: SECOND })
    await bench.storage.queue.pause(bench.ref, true)
    await bench.advance(2 * SECOND)
    await bench.storage.queue.pause(bench.ref, false)
    assert.deepEqual(idsOf(await (await bench.hand()).claim(5)), ['delayed'])
  })
}
