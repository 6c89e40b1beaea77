/** W: the parts of `work` beside claims and settlements: marks, reports, notices, and what is said when a session is gone. */
import assert from 'node:assert/strict'
import type { Rule } from './harness.js'
import { ending, HOUR, ids, idsOf, SHORT_TTL } from './sketch.js'

export function workRules(rule: Rule): void {
  markRules(rule)
  takenRules(rule)
}

function markRules(rule: Rule): void {
  rule('W1', 'a mark makes the entry started, only with the token of the entry', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const { token } = hand.mark(id)
    await hand.work({
      marks: [
        { id, token: token - 1 },
        { id, token: token + 1 },
        { id: 'nobody', token },
      ],
    })
    assert.equal((await bench.get(id)).started, false)
    await (await bench.node()).work({ marks: [{ id, token }] })
    assert.equal((await bench.get(id)).started, false)
    await hand.work({
      marks: [
        { id, token },
        { id, token },
      ],
    })
    assert.equal((await bench.get(id)).started, true)
    assert.equal((await bench.storage.queue.counts(bench.ref)).prefetched, 0)
  })

  rule('W2', 'progress, checkpoint and log lines are kept while the task is held', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const checkpoint = new Uint8Array([0, 1])
    const first = await hand.work({
      reports: [{ ...hand.mark(id), progress: '10', checkpoint, logs: ['one'] }],
    })
    assert.deepEqual(first.staleReports, [])
    await hand.work({
      reports: [
        { ...hand.mark(id), progress: '20' },
        { ...hand.mark(id), logs: ['two', 'three'] },
      ],
    })
    const record = await bench.get(id)
    assert.equal(record.progress, '20')
    assert.deepEqual([...(record.checkpoint as Uint8Array)], [0, 1])
    assert.deepEqual(record.logs, ['one', 'two', 'three'])
  })

  rule('W3', 'of the log lines the newest 100 are kept', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const lines = ids('line', 150)
    await hand.work({ reports: [{ ...hand.mark(id), logs: lines.slice(0, 90) }] })
    await hand.work({ reports: [{ ...hand.mark(id), logs: lines.slice(90) }] })
    assert.deepEqual((await bench.get(id)).logs, lines.slice(50))
  })

  rule('W4', 'a report without the entry is named stale and changes nothing', async (bench) => {
    const [held, lost] = [await bench.makeIn('running'), await bench.makeIn('running')]
    const hand = await bench.hand()
    await bench.operate('cancel', lost)
    const { token } = hand.mark(held)
    const { staleReports } = await hand.work({
      reports: [
        { ...hand.mark(lost), progress: '1', checkpoint: 'x', logs: ['late'] },
        { ...hand.mark(held), progress: '2' },
        { id: held, token: token + 1, progress: '3' },
        { id: 'nobody', token, progress: '4' },
      ],
    })
    assert.deepEqual(staleReports, [0, 2, 3])
    const { progress, checkpoint, logs } = await bench.get(lost)
    assert.deepEqual([progress, checkpoint, logs ?? []], [undefined, undefined, []])
    assert.equal((await bench.get(held)).progress, '2')
  })

  rule('W5', 'the checkpoint comes back with the next claim', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    await hand.work({ reports: [{ ...hand.mark(id), checkpoint: 'half way' }] })
    await hand.settle(id, 'retry', { in: 0 })
    await bench.advance(5)
    const [claimed] = await hand.claim(1)
    assert.equal(claimed?.checkpoint, 'half way')
  })

  rule('W6', 'marks and reports of a call come before its settlements', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const reply = await hand.work({
      marks: [hand.mark(id)],
      reports: [{ ...hand.mark(id), progress: '100' }],
      settlements: [ending(hand.mark(id), 'success')],
    })
    assert.deepEqual([reply.stale, reply.staleReports], [[], []])
    const { state, progress } = await bench.get(id)
    assert.deepEqual({ state, progress }, { state: 'success', progress: '100' })
  })

  rule('W7', 'settlements of a call come before its claim', async (bench) => {
    await bench.add({ id: 'parent', priority: 0 }, { id: 'child', after: { ids: ['parent'], on: 'success' } })
    const hand = await bench.hand()
    await hand.claim(1)
    const claimed = await hand.claim(1, { settlements: [ending(hand.mark('parent'), 'success')] })
    assert.deepEqual(idsOf(claimed), ['child'])
  })

  rule('W8', 'a call with nothing in it is fine, and says what the session holds', async (bench) => {
    const hand = await bench.hand()
    const empty = await hand.work()
    assert.deepEqual(
      [empty.status, empty.held, empty.token, empty.claimed, empty.stale, empty.staleReports, empty.taken],
      ['ok', 0, 0, [], [], [], []],
    )
    await bench.makeIn('running')
    await bench.makeIn('running')
    const reply = await hand.work()
    assert.deepEqual([reply.held, reply.token, reply.claimed], [2, hand.ack, []])
  })
}

function takenRules(rule: Rule): void {
  rule(
    'W-taken-cancel',
    'a session is told of a task that was cancelled, with the token that it held',
    async (bench) => {
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      await bench.operate('cancel', id)
      const { taken, held } = await hand.work()
      assert.deepEqual(
        taken.map((notice) => ({ ...notice })),
        [{ ...hand.mark(id), reason: 'cancelled' }],
      )
      assert.equal(held, 0)
    },
  )

  rule(
    'W-taken-revoke',
    'a session is told of a task that was revoked, with the token that it held',
    async (bench) => {
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      await bench.operate('revoke', id)
      const { taken } = await hand.work()
      assert.deepEqual(
        taken.map((notice) => ({ ...notice })),
        [{ ...hand.mark(id), reason: 'revoked' }],
      )
    },
  )

  rule(
    'W19',
    'what was taken is told with every reply until it is acknowledged, and no longer',
    async (bench) => {
      const [a, b] = [await bench.makeIn('running'), await bench.makeIn('running')]
      const hand = await bench.hand()
      await bench.operate('cancel', a)
      const first = await hand.work()
      for (let turn = 0; turn < 3; turn++) {
        const again = await hand.work({ want: turn, renew: turn === 1 })
        assert.deepEqual([idsOf(again.taken), again.takenSeq], [[a], first.takenSeq])
      }
      await bench.operate('cancel', b)
      const both = await hand.work()
      assert.deepEqual(idsOf(both.taken), [a, b])
      assert.ok(both.takenSeq > first.takenSeq)
      const second = await hand.work({ ackTaken: first.takenSeq })
      assert.deepEqual(
        idsOf(second.taken).filter((id) => id !== a),
        [b],
        'a notice was dropped before its acknowledgement',
      )
      const last = await hand.work({ ackTaken: both.takenSeq })
      assert.deepEqual(last.taken, [])
      await bench.operate('cancel', await bench.makeIn('running'))
      const next = await hand.work({ ackTaken: both.takenSeq })
      assert.equal(next.taken.length, 1)
      assert.ok(next.takenSeq > both.takenSeq)
    },
  )

  rule(
    'W20',
    'the notice of an earlier claim has a smaller token than the claim that followed',
    async (bench) => {
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      const old = hand.mark(id)
      await bench.operate('revoke', id)
      await hand.claim(1)
      const reply = await hand.work()
      assert.deepEqual(
        reply.taken.map(({ token }) => token),
        [old.token],
      )
      assert.ok(hand.mark(id).token > old.token)
      await bench.stands(id, 'running')
      await hand.settle(id, 'success')
    },
  )

  rule('W21', 'only the session that held the task is told', async (bench) => {
    const other = await bench.node()
    const id = await bench.makeIn('running')
    await bench.operate('cancel', id)
    await bench.operate('cancel', await bench.makeIn('pending'))
    assert.deepEqual((await other.work()).taken, [])
    assert.deepEqual(idsOf((await (await bench.hand()).work()).taken), [id])
  })

  rule('W22', 'an acknowledgement and a late repeat of it do no harm', async (bench) => {
    const hand = await bench.hand()
    await bench.operate('cancel', await bench.makeIn('running'))
    const { takenSeq } = await hand.work()
    await hand.work({ ackTaken: takenSeq })
    const id = await bench.makeIn('running')
    await bench.operate('revoke', id)
    await hand.work({ ackTaken: 0 })
    assert.deepEqual(idsOf((await hand.work({ ackTaken: takenSeq })).taken), [id])
  })

  rule('W23', 'a call for a session that never was says gone, and changes nothing', async (bench) => {
    const id = await bench.makeIn('pending')
    const reply = await bench.storage.session.work({
      session: 'nobody',
      ack: 0,
      ackTaken: 0,
      marks: [{ id, token: 1 }],
      reports: [{ id, token: 1, progress: '1' }],
      settlements: [ending({ id, token: 1 }, 'success')],
      renew: true,
      want: 5,
    })
    assert.deepEqual([reply.status, reply.claimed, reply.stale, reply.staleReports], ['gone', [], [0], [0]])
    await bench.stands(id, 'pending')
  })

  rule('W24', 'in a call that says gone, what is not listed as stale was accepted', async (bench) => {
    const id = await bench.makeIn('running')
    const lost = await bench.makeIn('running')
    const hand = await bench.hand()
    await hand.settle(id, 'success')
    await bench.storage.session.end(hand.session, 10)
    const reply = await hand.work({
      settlements: [ending(hand.mark(lost), 'success'), ending(hand.mark(id), 'success')],
      want: 5,
    })
    assert.deepEqual([reply.status, reply.stale, reply.claimed], ['gone', [0], []])
    assert.deepEqual(await bench.states(id, lost), ['success', 'pending'])
  })

  rule(
    'W25',
    'what a session still holds when it is condemned can be settled until it is taken back',
    async (bench) => {
      await bench.add(...ids('t', 5))
      const node = await bench.node({ ttl: SHORT_TTL })
      await node.claim(5)
      await bench.advance(0.7 * SHORT_TTL)
      await bench.storage.upkeep.reclaim(1)
      await bench.advance(0.5 * SHORT_TTL)
      const taken = new Set<string>()
      for (let calls = 0; calls < 5 && taken.size === 0; calls++) {
        for (const { id } of (await bench.storage.upkeep.reclaim(1)).reclaimed) taken.add(id)
      }
      assert.equal(taken.size, 1)
      const names = ids('t', 5)
      const reply = await node.work({
        settlements: names.map((id) => ending(node.mark(id), 'success')),
        want: 5,
        renew: true,
      })
      assert.equal(reply.status, 'gone')
      assert.deepEqual(reply.stale, [names.findIndex((id) => taken.has(id))])
      assert.deepEqual(reply.claimed, [])
      assert.deepEqual(
        await bench.states(...names),
        names.map((id) => (taken.has(id) ? 'pending' : 'success')),
      )
      await bench.storage.upkeep.reclaim(10)
      assert.equal((await bench.census()).size, 5)
      assert.equal(await bench.stateOf(names.find((id) => !taken.has(id)) ?? ''), 'success')
    },
  )

  rule('W26', 'progress and log lines stay with the record when the task is final', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    await hand.work({ reports: [{ ...hand.mark(id), progress: '50', logs: ['line'] }] })
    await hand.settle(id, 'success')
    const { progress, logs } = await bench.get(id)
    assert.deepEqual([progress, logs], ['50', ['line']])
    assert.ok((await bench.time()) - HOUR < (await bench.get(id)).since)
  })
}
