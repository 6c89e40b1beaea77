/** D: attempts that are suspended until others end, or until their time passes. */
import assert from 'node:assert/strict'
import type { FinalState } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { ending, HOUR, idsOf, SECOND } from './sketch.js'
/** Ends a pending task of priority 0 in one of the four ways. */
async function end(bench: Bench, id: string, state: FinalState): Promise<void> {
  const hand = await bench.hand()
  assert.deepEqual(idsOf(await hand.claim(1)), [id])
  await hand.settle(id, state)
}

export function suspensionRules(rule: Rule): void {
  rule(
    'D-suspend-after',
    'an attempt suspended after others waits for them, costs nothing, and keeps its checkpoint',
    async (bench) => {
      await bench.makeIn('success', { id: 'old' })
      await bench.makeIn('scheduled', { id: 'other', priority: 0 })
      await bench.add({ id: 'task', priority: 0, after: { ids: ['old'], on: 'success' } })
      const hand = await bench.hand()
      await hand.claim(1)
      await hand.start('task')
      await hand.settle('task', 'suspended', { after: { ids: ['other'], on: 'final' }, checkpoint: 'here' })
      const record = await bench.get('task')
      assert.deepEqual([record.state, record.attempts, record.started], ['blocked', 0, false])
      assert.deepEqual(record.waitsFor, ['other'])
      assert.equal((await hand.work()).held, 0)
      await bench.operate('promote', 'other')
      await end(bench, 'other', 'skipped')
      const [again] = await hand.claim(1)
      assert.deepEqual(
        [again?.id, again?.attempts, again?.checkpoint, again?.timedOut ?? false],
        ['task', 0, 'here', false],
      )
      assert.deepEqual(
        new Map(again?.parents?.map((parent) => [parent.id, parent.state])),
        new Map([
          ['old', 'success'],
          ['other', 'skipped'],
        ] as [string, string][]),
      )
      await hand.settle('task', 'success')
      assert.equal((await bench.get('task')).attempts, 1)
    },
  )

  rule(
    'D-suspend-until',
    'an attempt suspended for a time is scheduled, and costs nothing',
    async (bench) => {
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      await hand.settle(id, 'suspended', { until: SECOND, checkpoint: 'here' })
      const { state, dueAt, since, attempts } = await bench.get(id)
      assert.deepEqual([state, dueAt, attempts], ['scheduled', since + SECOND, 0])
      assert.deepEqual(await hand.claim(1), [])
      await bench.advance(SECOND)
      const [again] = await hand.claim(1)
      assert.deepEqual([again?.id, again?.attempts, again?.checkpoint], [id, 0, 'here'])
    },
  )

  rule(
    'D-suspend-first',
    'an attempt suspended for both is released by the others, and its time is over',
    async (bench) => {
      await bench.makeIn('scheduled', { id: 'other' })
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      await hand.settle(id, 'suspended', { after: { ids: ['other'], on: 'final' }, until: SECOND })
      const { state, deadline, since } = await bench.get(id)
      assert.deepEqual([state, deadline], ['blocked', since + SECOND])
      await bench.operate('cancel', 'other')
      await bench.stands(id, 'pending')
      assert.equal((await bench.get(id)).deadline, undefined)
      await bench.advance(2 * SECOND)
      await bench.drain()
      await bench.stands(id, 'pending')
      const [again] = await hand.claim(1)
      assert.deepEqual([again?.id, again?.timedOut ?? false], [id, false])
      await bench.drain()
      await bench.stands(id, 'running')
    },
  )

  rule(
    'D-suspend-timeout',
    'an attempt suspended for both is ready when its time passes first, and is told so once',
    async (bench) => {
      await bench.makeIn('scheduled', { id: 'other' })
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      await hand.settle(id, 'suspended', { after: { ids: ['other'], on: 'success' }, until: SECOND })
      await bench.advance(2 * SECOND)
      const [again] = await hand.claim(1)
      assert.deepEqual([again?.id, again?.timedOut], [id, true])
      await bench.operate('cancel', 'other')
      await bench.drain()
      await bench.stands(id, 'running')
      await hand.settle(id, 'retry', { in: 0 })
      await bench.advance(5)
      assert.equal((await hand.claim(1))[0]?.timedOut ?? false, false)
    },
  )

  rule(
    'D19',
    'an attempt suspended after tasks that are final already is ready at once, at a new place',
    async (bench) => {
      await bench.makeIn('success', { id: 'other' })
      const hand = await bench.hand()
      await bench.add('task', 'next')
      await hand.claim(1)
      await hand.settle('task', 'suspended', { after: { ids: ['other'], on: 'success' } })
      assert.deepEqual(idsOf(await hand.claim(9)), ['next', 'task'])
    },
  )

  rule(
    'D20',
    'an attempt suspended for the success of a task that fails ends cancelled with DEPENDENCY_FAILED',
    async (bench) => {
      await bench.makeIn('scheduled', { id: 'later' })
      await bench.makeIn('failed', { id: 'before' })
      const hand = await bench.hand()
      for (const other of ['later', 'before']) {
        const id = await bench.makeIn('running')
        await hand.settle(id, 'suspended', { after: { ids: [other], on: 'success' }, until: HOUR })
        if (other === 'later') await bench.operate('cancel', 'later')
        await bench.stands(id, 'cancelled')
        assert.equal((await bench.get(id)).reason, 'DEPENDENCY_FAILED')
      }
    },
  )

  rule('D21', 'a suspended task can be cancelled, and nothing wakes it then', async (bench) => {
    await bench.makeIn('scheduled', { id: 'other' })
    const id = await bench.makeIn('running')
    await (
      await bench.hand()
    ).settle(id, 'suspended', { after: { ids: ['other'], on: 'final' }, until: SECOND })
    await bench.operate('cancel', id)
    await bench.advance(2 * SECOND)
    await bench.operate('cancel', 'other')
    await bench.drain()
    await bench.stands(id, 'cancelled')
  })

  rule('D22', 'what an attempt waits for is pinned until the task is final', async (bench) => {
    const other = await bench.makeIn('scheduled')
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    await hand.settle(id, 'suspended', { after: { ids: [other], on: 'final' } })
    await bench.operate('cancel', other)
    const refused = await bench.operate('remove', other)
    assert.equal(typeof refused === 'object' && refused.neededBy, id)
    await hand.claim(1)
    await hand.settle(id, 'success')
    assert.equal(await bench.operate('remove', other), 'done')
  })

  rule(
    'D24',
    'an attempt whose time passes together with that of the task for which it waits goes on once',
    async (bench) => {
      await bench.add({ id: 'other', delay: HOUR, expiresIn: 2 * SECOND })
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      await hand.settle(id, 'suspended', { after: { ids: ['other'], on: 'final' }, until: 2 * SECOND })
      await bench.advance(3 * SECOND)
      await bench.drain()
      assert.deepEqual(await bench.states('other', id), ['cancelled', 'pending'])
      await bench.census()
      assert.deepEqual(idsOf(await hand.claim(9)), [id])
    },
  )

  for (const order of ['before', 'after'] as const) {
    rule(
      `D-together-${order}`,
      `an attempt that is suspended ${order} the one for which it waits settles in the same call goes on`,
      async (bench) => {
        await bench.add('task', 'other')
        const hand = await bench.node()
        await hand.claim(2)
        const suspension = ending(hand.mark('task'), 'suspended', { after: { ids: ['other'], on: 'final' } })
        const end = ending(hand.mark('other'), 'success')
        const settlements = order === 'before' ? [suspension, end] : [end, suspension]
        assert.deepEqual((await hand.work({ settlements })).stale, [])
        assert.deepEqual(await bench.states('task', 'other'), ['pending', 'success'])
        const pinned = await bench.operate('remove', 'other')
        assert.equal(typeof pinned === 'object' && pinned.neededBy, 'task')
        const [task] = await hand.claim(9)
        assert.deepEqual(
          task?.parents?.map((parent) => ({ ...parent })),
          [{ id: 'other', state: 'success' }],
        )
        await bench.census()
      },
    )
  }

  rule(
    'D23',
    'an attempt suspended after a task that is unknown, or after itself, ends cancelled with DEPENDENCY_NOT_FOUND',
    async (bench) => {
      const hand = await bench.hand()
      for (const other of ['nobody', 'itself']) {
        const id = await bench.makeIn('running')
        const after = { ids: [other === 'itself' ? id : other], on: 'final' }
        await hand.settle(id, 'suspended', { after })
        await bench.stands(id, 'cancelled')
        assert.equal((await bench.get(id)).reason, 'DEPENDENCY_NOT_FOUND')
      }
    },
  )
}
