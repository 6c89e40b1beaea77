/** S: what becomes of the entries of a lost session, and of those that are revoked. */
import assert from 'node:assert/strict'
import type { Rule } from './harness.js'
import { ids, idsOf, SHORT_TTL } from './sketch.js'

/** When a silent session of {@link SHORT_TTL} is suspect. */
const SUSPECT = 0.7 * SHORT_TTL
/** After a suspicion: long enough to be condemned. */
const CONDEMNED = 0.5 * SHORT_TTL

export function reclaimRules(rule: Rule): void {
  rule('S12', 'an entry that was not started comes back free, and on probation', async (bench) => {
    await bench.add('task')
    const node = await bench.node({ ttl: SHORT_TTL })
    await node.claim(1)
    const report = await bench.lose(node)
    assert.deepEqual(
      report.reclaimed.map((task) => ({ ...task })),
      [{ ...bench.ref, id: 'task' }],
    )
    const [task] = await (await bench.hand()).claim(1)
    assert.deepEqual([task?.probation, task?.reclaims, task?.attempts], [true, 0, 0])
  })

  rule('S13', 'a started entry that is taken back counts as reclaimed, not as an attempt', async (bench) => {
    await bench.add('task')
    const node = await bench.node({ ttl: SHORT_TTL })
    await node.claim(1)
    await node.start('task')
    await node.work({ reports: [{ ...node.mark('task'), checkpoint: 'half way' }] })
    await bench.lose(node)
    const record = await bench.get('task')
    assert.deepEqual(
      [record.state, record.reclaims, record.attempts, record.started],
      ['pending', 1, 0, false],
    )
    const [task] = await (await bench.hand()).claim(1)
    assert.deepEqual([task?.reclaims, task?.attempts, task?.checkpoint], [1, 0, 'half way'])
  })

  rule(
    'S14',
    'a started task that is taken back more often than maxReclaims fails with POISON',
    async (bench) => {
      await bench.add('task', { id: 'child', after: { ids: ['task'], on: 'success' } })
      for (let turn = 0; turn < 3; turn++) {
        const node = await bench.node({ ttl: SHORT_TTL, maxReclaims: 2 })
        await node.claim(1)
        await node.start('task')
        const { reclaimed, poisoned } = await bench.lose(node)
        assert.deepEqual([idsOf(reclaimed), idsOf(poisoned)], turn < 2 ? [['task'], []] : [[], ['task']])
      }
      const { state, reason, settledToken, attempts } = await bench.get('task')
      assert.deepEqual(
        { state, reason, settledToken, attempts },
        { state: 'failed', reason: 'POISON', settledToken: 0, attempts: 0 },
      )
      await bench.drain()
      assert.equal((await bench.get('child')).reason, 'DEPENDENCY_FAILED')
      await bench.stands('task', 'failed')
    },
  )

  rule(
    'S15',
    'an entry that is never started is never poison, however often it comes back',
    async (bench) => {
      await bench.add('task')
      for (let turn = 0; turn < 3; turn++) {
        const node = await bench.node({ ttl: SHORT_TTL, maxReclaims: 0 })
        const [task] = await node.claim(1)
        assert.equal(task?.probation, turn > 0)
        await bench.lose(node)
      }
      const { state, reclaims } = await bench.get('task')
      assert.deepEqual({ state, reclaims }, { state: 'pending', reclaims: 0 })
    },
  )

  rule(
    'S16',
    'only the started entry of a lost session is counted, not its prefetched neighbours',
    async (bench) => {
      await bench.add('a', 'b', 'c')
      const node = await bench.node({ ttl: SHORT_TTL, maxReclaims: 0 })
      await node.claim(3)
      await node.start('b')
      const { reclaimed, poisoned } = await bench.lose(node)
      assert.deepEqual([idsOf(reclaimed).sort(), idsOf(poisoned)], [['a', 'c'], ['b']])
      assert.deepEqual(await bench.states('a', 'b', 'c'), ['pending', 'failed', 'pending'])
    },
  )

  rule('S17', 'a probation that ends well is over', async (bench) => {
    await bench.add('task')
    const node = await bench.node({ ttl: SHORT_TTL })
    await node.claim(1)
    await bench.lose(node)
    const hand = await bench.hand()
    await hand.claim(1)
    await hand.settle('task', 'retry', { in: 0 })
    await bench.advance(5)
    assert.equal((await hand.claim(1))[0]?.probation, false)
  })

  rule('S29', 'a probation is over when the task is marked as started', async (bench) => {
    await bench.add('task')
    const node = await bench.node({ ttl: SHORT_TTL })
    await node.claim(1)
    await bench.lose(node)
    const hand = await bench.hand()
    await hand.claim(1)
    await hand.settle('task', 'released')
    assert.equal((await hand.claim(1))[0]?.probation, true)
    await hand.start('task')
    await hand.settle('task', 'released')
    assert.equal((await hand.claim(1))[0]?.probation, false)
  })

  rule(
    'S18',
    'reclaim takes back no more than its limit in a call, and goes on with the next',
    async (bench) => {
      await bench.add(...ids('t', 7))
      const node = await bench.node({ ttl: SHORT_TTL })
      await node.claim(7)
      await bench.advance(SUSPECT)
      await bench.storage.upkeep.reclaim(3)
      await bench.advance(CONDEMNED)
      const back: string[] = []
      for (let calls = 0; calls < 10 && back.length < 7; calls++) {
        const { reclaimed } = await bench.storage.upkeep.reclaim(3)
        assert.ok(reclaimed.length <= 3)
        back.push(...idsOf(reclaimed))
        assert.equal((await node.work()).status, 'gone')
        assert.equal((await bench.census()).size, 7)
      }
      assert.deepEqual(back.sort(), ids('t', 7))
      assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), ids('t', 7))
    },
  )

  rule(
    'S19',
    'claims alone, without upkeep, find a lost session and take its tasks over, 200 at most in one',
    async (bench) => {
      await bench.add(...ids('t', 250))
      const node = await bench.node({ ttl: SHORT_TTL })
      await node.claimAll()
      const hand = await bench.hand()
      await bench.advance(SUSPECT)
      assert.deepEqual(await hand.claim(1), [])
      await bench.advance(CONDEMNED)
      const claimed = idsOf(await hand.claim(100))
      const { pending } = await bench.storage.queue.counts(bench.ref)
      assert.ok(claimed.length + pending <= 200, `${claimed.length + pending} taken back by one claim`)
      for (let calls = 0; calls < 10; calls++) claimed.push(...idsOf(await hand.claim(100)))
      assert.deepEqual(claimed.sort(), ids('t', 250))
    },
  )

  rule(
    'S31',
    'what a condemned session still holds comes back as lost, also by an end that comes too late',
    async (bench) => {
      await bench.add('a', 'b', 'c')
      const node = await bench.node({ ttl: SHORT_TTL })
      await node.claim(3)
      await node.start('b')
      await bench.advance(SUSPECT)
      await bench.storage.upkeep.reclaim(10)
      await bench.advance(CONDEMNED)
      await bench.storage.upkeep.reclaim(1)
      assert.equal(await bench.storage.session.end(node.session, 10), 'done')
      const claimed = await (await bench.hand()).claim(9)
      assert.deepEqual(
        claimed.map(({ id, probation, reclaims }) => [id, probation, reclaims]),
        [
          ['a', true, 0],
          ['b', false, 1],
          ['c', true, 0],
        ],
      )
    },
  )

  rule('S32', 'a task that is revoked while its session ends may be poison like any other', async (bench) => {
    await bench.add('a', 'b')
    const node = await bench.node({ maxReclaims: 0 })
    await node.claim(2)
    assert.equal(await bench.storage.session.end(node.session, 1), 'more')
    const [held] = await bench.list({ state: 'running' })
    assert.equal(await bench.operate('revoke', held?.id ?? ''), 'done')
    assert.equal((await bench.get(held?.id ?? '')).reason, 'POISON')
    await bench.census()
  })

  rule(
    'S20',
    'revoke gives a task to others, counts as a reclaim, started or not, and may be the last',
    async (bench) => {
      await bench.add('task')
      const node = await bench.node({ maxReclaims: 2 })
      for (let turn = 1; turn <= 2; turn++) {
        await node.claim(1)
        if (turn === 2) await node.start('task')
        assert.equal(await bench.operate('revoke', 'task'), 'done')
        const { state, reclaims, attempts } = await bench.get('task')
        assert.deepEqual({ state, reclaims, attempts }, { state: 'pending', reclaims: turn, attempts: 0 })
      }
      await node.claim(1)
      assert.equal(await bench.operate('revoke', 'task'), 'done')
      const { state, reason } = await bench.get('task')
      assert.deepEqual({ state, reason }, { state: 'failed', reason: 'POISON' })
    },
  )
}
