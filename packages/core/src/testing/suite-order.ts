/** P: the order in which ready tasks are claimed, which steps keep a task's place in it, and the lanes. */
import assert from 'node:assert/strict'
import type { Rule } from './harness.js'
import { HOUR, idsOf, SECOND, SHORT_TTL } from './sketch.js'

export function orderRules(rule: Rule): void {
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

  rule('P5', 'a scheduled task is never claimed before it is due', async (bench) => {
    await bench.add({ id: 'delayed', delay: 2 * SECOND })
    await bench.advance(SECOND)
    const hand = await bench.hand()
    await bench.drain()
    assert.deepEqual(await hand.claim(1), [])
    assert.equal(await bench.stateOf('delayed'), 'scheduled')
    await bench.advance(SECOND)
    assert.deepEqual(idsOf(await hand.claim(1)), ['delayed'])
  })

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
