/** E: `expiresIn`, wherever the task stands when its time passes. */
import assert from 'node:assert/strict'
import type { Rule } from './harness.js'
import { HOUR, idsOf, SECOND } from './sketch.js'
export function expiryRules(rule: Rule): void {
  for (const [place, task] of Object.entries({
    pending: {},
    aside: { kind: 'rare' },
    scheduled: { delay: HOUR },
    held: { hold: true },
    blocked: { after: { ids: ['other'], on: 'final' } },
  } as const)) {
    const what = place === 'aside' ? 'a task that stands aside' : `a ${place} task`
    rule(`E-expire-${place}`, `${what} expires and ends cancelled with TASK_EXPIRED`, async (bench) => {
      await bench.add({ id: 'other', delay: HOUR })
      await bench.add({ id: 'task', expiresIn: SECOND, ...task })
      const hand = await bench.node()
      await bench.add('plain')
      await hand.claim(1, place === 'pending' ? { moreUrgentThan: 0 } : {})
      await bench.advance(500)
      await bench.drain()
      assert.notEqual(await bench.stateOf('task'), 'cancelled')
      await bench.advance(SECOND)
      assert.ok(!idsOf(await hand.claim(9)).includes('task'), 'an expired task is claimed')
      await bench.drain()
      await bench.stands('task', 'cancelled')
      const { reason, settledToken } = await bench.get('task')
      assert.deepEqual({ reason, settledToken }, { reason: 'TASK_EXPIRED', settledToken: 0 })
      assert.equal(await bench.operate('cancel', 'other'), 'done')
      await bench.stands('task', 'cancelled')
    })
  }

  rule(
    'E-expire-prefetched',
    'a claimed task expires until it is started; its node is told',
    async (bench) => {
      const id = await bench.makeIn('running', { expiresIn: SECOND })
      const hand = await bench.hand()
      await bench.advance(2 * SECOND)
      await bench.drain()
      assert.equal((await bench.get(id)).reason, 'TASK_EXPIRED')
      await bench.stands(id, 'cancelled')
      const { taken } = await hand.work()
      assert.deepEqual(
        taken.map(({ id: name, token, reason }) => ({ id: name, token, reason })),
        [{ ...hand.mark(id), reason: 'cancelled' }],
      )
      assert.equal(await hand.isStale(id), true)
      await bench.stands(id, 'cancelled')
    },
  )

  rule('E-expire-started', 'a started task does not expire', async (bench) => {
    const id = await bench.makeIn('running', { expiresIn: SECOND })
    const hand = await bench.hand()
    await hand.start(id)
    await bench.advance(2 * SECOND)
    await bench.drain()
    await bench.stands(id, 'running')
    await hand.settle(id, 'success')
    await bench.advance(2 * SECOND)
    await bench.drain()
    await bench.stands(id, 'success')
  })

  rule(
    'E-expire-released',
    'a task that was claimed and given back unstarted still expires',
    async (bench) => {
      const id = await bench.makeIn('running', { expiresIn: SECOND })
      await (await bench.hand()).settle(id, 'released')
      await bench.advance(2 * SECOND)
      await bench.drain()
      assert.equal((await bench.get(id)).reason, 'TASK_EXPIRED')
    },
  )

  rule('E-expire-retried', 'a task of which an attempt ended does not expire any more', async (bench) => {
    const [retried, suspended] = [
      await bench.makeIn('running', { expiresIn: SECOND }),
      await bench.makeIn('running', { expiresIn: SECOND }),
    ]
    const hand = await bench.hand()
    await hand.settle(retried, 'retry', { in: HOUR })
    await hand.settle(suspended, 'suspended', { until: HOUR })
    await bench.advance(2 * SECOND)
    await bench.drain()
    assert.deepEqual(await bench.states(retried, suspended), ['scheduled', 'scheduled'])
  })
}
