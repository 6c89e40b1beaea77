/** S: sessions. Opening, beats, suspicion, resume, and the end. */
import assert from 'node:assert/strict'
import type { Bench, Rule } from './harness.js'
import { ids, idsOf, KEEP, MINUTE, SECOND, SHORT_TTL } from './sketch.js'

/** Just before, and after, a silent session of {@link SHORT_TTL} is suspect. */
const UNSUSPECTED = 0.3 * SHORT_TTL
const SUSPECT = 0.7 * SHORT_TTL
/** After a suspicion: not yet long enough, and long enough, to be condemned. */
const UNCONDEMNED = 0.15 * SHORT_TTL
const CONDEMNED = 0.5 * SHORT_TTL

const nodeRecord = async (bench: Bench, session: string): Promise<boolean> =>
  (await bench.storage.records.get(bench.ref.tenant, `node:${session}`)) !== undefined

export function sessionRules(rule: Rule): void {
  judgementRules(rule)
  endRules(rule)
}

function judgementRules(rule: Rule): void {
  rule(
    'S1',
    'a session lives from its opening, with its node among the records of the tenant',
    async (bench) => {
      const node = await bench.node()
      assert.equal((await node.work()).status, 'ok')
      assert.equal(await nodeRecord(bench, node.session), true)
      const { records } = await bench.storage.records.list(bench.ref.tenant, { prefix: 'node:', limit: 10 })
      assert.deepEqual(
        records.map((record) => record.key),
        [`node:${node.session}`],
      )
      assert.ok(String(records[0]?.value).includes('node-1'))
    },
  )

  rule(
    'S2',
    'a session is suspect after 0.6 of its ttl without a beat, and condemned 0.4 of it later',
    async (bench) => {
      const node = await bench.node({ ttl: SHORT_TTL })
      const { upkeep } = bench.storage
      await bench.advance(UNSUSPECTED)
      assert.deepEqual((await upkeep.reclaim(10)).suspected, [])
      await bench.advance(SUSPECT - UNSUSPECTED)
      assert.deepEqual((await upkeep.reclaim(10)).suspected, [node.session])
      await bench.advance(UNCONDEMNED)
      assert.deepEqual((await upkeep.reclaim(10)).condemned, [])
      assert.equal((await node.work()).status, 'ok')
      await bench.advance(CONDEMNED - UNCONDEMNED)
      assert.deepEqual((await upkeep.reclaim(10)).condemned, [node.session])
      assert.equal((await node.work()).status, 'gone')
    },
  )

  rule(
    'S3',
    'without a first look nobody is condemned: the look after a long silence only suspects',
    async (bench) => {
      await bench.add('task')
      const node = await bench.node({ ttl: SHORT_TTL })
      await node.claim(1)
      await bench.advance(5 * SHORT_TTL)
      const report = await bench.storage.upkeep.reclaim(10)
      assert.deepEqual([report.suspected, report.condemned, report.reclaimed], [[node.session], [], []])
      assert.equal((await node.beat()).status, 'ok')
      await node.settle('task', 'success')
    },
  )

  rule('S4', 'a beat clears a suspicion, and the silence counts from it', async (bench) => {
    const node = await bench.node({ ttl: SHORT_TTL })
    const { upkeep } = bench.storage
    for (let turn = 0; turn < 3; turn++) {
      await bench.advance(SUSPECT)
      assert.deepEqual((await upkeep.reclaim(10)).suspected, [node.session])
      assert.equal((await node.beat()).status, 'ok')
    }
    await bench.advance(UNSUSPECTED)
    const report = await upkeep.reclaim(10)
    assert.deepEqual([report.suspected, report.condemned], [[], []])
  })

  rule('S5', 'a session that beats is never suspect', async (bench) => {
    const node = await bench.node({ ttl: SHORT_TTL })
    for (let beats = 0; beats < 8; beats++) {
      await bench.advance(UNSUSPECTED)
      const report = await bench.storage.upkeep.reclaim(10)
      assert.deepEqual([report.suspected, report.condemned], [[], []])
      assert.equal((await node.beat()).status, 'ok')
    }
  })

  rule('S6', 'a call that is no renewal is no beat', async (bench) => {
    const node = await bench.node({ ttl: SHORT_TTL })
    await bench.advance(UNSUSPECTED)
    await node.claim(1)
    await bench.advance(SUSPECT - UNSUSPECTED)
    assert.deepEqual((await bench.storage.upkeep.reclaim(10)).suspected, [node.session])
    await bench.advance(UNCONDEMNED)
    await node.work()
    await bench.advance(CONDEMNED - UNCONDEMNED)
    assert.deepEqual((await bench.storage.upkeep.reclaim(10)).condemned, [node.session])
  })

  rule('S7', 'each session is judged by its own ttl', async (bench) => {
    const [short, long] = [await bench.node({ ttl: SHORT_TTL }), await bench.node({ ttl: 20 * SHORT_TTL })]
    await bench.advance(SUSPECT)
    assert.deepEqual((await bench.storage.upkeep.reclaim(10)).suspected, [short.session])
    await bench.advance(CONDEMNED)
    assert.deepEqual((await bench.storage.upkeep.reclaim(10)).condemned, [short.session])
    assert.equal((await long.work()).status, 'ok')
  })

  rule('S8', 'a suspect session works on as ever', async (bench) => {
    await bench.add('a', 'b')
    const node = await bench.node({ ttl: SHORT_TTL })
    await node.claim(1)
    await bench.advance(SUSPECT)
    await bench.storage.upkeep.reclaim(10)
    await node.settle('a', 'success')
    assert.deepEqual(idsOf(await node.claim(1)), ['b'])
  })

  rule(
    'S9',
    'every call that names a condemned session is gone, and its node record with it',
    async (bench) => {
      const node = await bench.node({ ttl: SHORT_TTL })
      await bench.lose(node)
      assert.equal((await node.beat()).status, 'gone')
      assert.equal((await node.work({ want: 1 })).status, 'gone')
      assert.equal((await bench.storage.session.resume(node.session, [])).status, 'gone')
      assert.equal(await nodeRecord(bench, node.session), false)
    },
  )

  rule(
    'S10',
    'a condemned session is reported once, and upkeep that finds nothing reports nothing',
    async (bench) => {
      await bench.add('task')
      const node = await bench.node({ ttl: SHORT_TTL })
      await node.claim(1)
      await bench.lose(node)
      await bench.advance(SUSPECT)
      await bench.storage.upkeep.reclaim(10)
      await bench.advance(CONDEMNED)
      const { suspected, condemned, reclaimed, poisoned } = await bench.storage.upkeep.reclaim(10)
      assert.deepEqual([suspected, condemned, reclaimed, poisoned], [[], [], [], []])
    },
  )

  rule(
    'S30',
    'a session that beats after a long silence is among the records of the nodes again',
    async (bench) => {
      const node = await bench.node({ ttl: SHORT_TTL })
      await bench.advance(3 * SHORT_TTL)
      assert.equal(await nodeRecord(bench, node.session), false)
      await bench.prune(KEEP)
      assert.equal((await node.beat()).status, 'ok')
      assert.equal(await nodeRecord(bench, node.session), true)
    },
  )

  rule('S11', 'resume is a beat', async (bench) => {
    const node = await bench.node({ ttl: SHORT_TTL })
    await bench.advance(SUSPECT)
    await bench.storage.upkeep.reclaim(10)
    assert.equal((await bench.storage.session.resume(node.session, [])).status, 'ok')
    await bench.advance(UNSUSPECTED)
    const report = await bench.storage.upkeep.reclaim(10)
    assert.deepEqual([report.suspected, report.condemned], [[], []])
  })
}

function endRules(rule: Rule): void {
  rule('S21', 'the end gives everything back, free, in its old order', async (bench) => {
    await bench.add(...ids('t', 5))
    const node = await bench.node()
    await node.claim(2)
    await node.claim(3)
    await node.start('t0001')
    await bench.add({ id: 'later' }, { id: 'urgent', priority: 1 })
    assert.equal(await bench.storage.session.end(node.session, 100), 'done')
    assert.equal(await nodeRecord(bench, node.session), false)
    const claimed = await (await bench.hand()).claim(9)
    assert.deepEqual(idsOf(claimed), ['urgent', ...ids('t', 5), 'later'])
    for (const task of claimed)
      assert.deepEqual([task.reclaims, task.attempts, task.probation], [0, 0, false])
  })

  rule('S22', 'the end goes on in bounded steps, and the session is gone from the first', async (bench) => {
    await bench.add(...ids('t', 5))
    const node = await bench.node()
    await node.claim(5)
    const answers: string[] = []
    for (let calls = 0; calls < 9 && answers.at(-1) !== 'done'; calls++) {
      const before = (await bench.storage.queue.counts(bench.ref)).pending
      answers.push(await bench.storage.session.end(node.session, 2))
      assert.ok((await bench.storage.queue.counts(bench.ref)).pending - before <= 2)
      assert.equal((await node.work({ want: 5, renew: true })).status, 'gone')
      assert.equal((await bench.census()).size, 5)
    }
    assert.equal(answers.at(-1), 'done')
    assert.ok(answers.length >= 3)
    assert.equal((await bench.storage.queue.counts(bench.ref)).pending, 5)
  })

  rule('S23', 'the end may be repeated, also of a session that never was', async (bench) => {
    const node = await bench.node()
    for (const session of [node.session, node.session, 'nobody']) {
      assert.equal(await bench.storage.session.end(session, 10), 'done')
    }
    assert.equal((await bench.storage.session.resume(node.session, [])).status, 'gone')
  })

  rule('S24', 'an end that stopped half way is finished by reclaim', async (bench) => {
    await bench.add(...ids('t', 3))
    const node = await bench.node({ ttl: SHORT_TTL })
    await node.claim(3)
    assert.equal(await bench.storage.session.end(node.session, 1), 'more')
    await bench.advance(SUSPECT)
    await bench.storage.upkeep.reclaim(10)
    await bench.advance(CONDEMNED)
    await bench.storage.upkeep.reclaim(10)
    await bench.storage.upkeep.reclaim(10)
    assert.deepEqual(await bench.states(...ids('t', 3)), ['pending', 'pending', 'pending'])
  })

  rule(
    'S25',
    'resume tells what the session holds, as the claim did, and what became of the ids',
    async (bench) => {
      await bench.add('a', 'b', 'c')
      const node = await bench.node()
      const claimed = [...(await node.claim(1)), ...(await node.claim(2))]
      await node.settle('b', 'success')
      await bench.operate('cancel', 'c')
      const reply = await bench.storage.session.resume(node.session, ['a', 'b', 'c', 'nobody'])
      assert.deepEqual([reply.status, reply.token], ['ok', node.ack])
      assert.deepEqual(idsOf(reply.entries), ['a'])
      const { waited: _, ...entry } = reply.entries[0] ?? { waited: 0 }
      const { waited: __, ...first } = claimed[0] ?? { waited: 0 }
      assert.deepEqual(entry, first)
      assert.deepEqual(
        reply.tasks.map((task) => task && { ...task }),
        [
          { state: 'running', settledToken: 0 },
          { state: 'success', settledToken: node.mark('b').token },
          { state: 'cancelled', settledToken: 0 },
          undefined,
        ],
      )
    },
  )

  rule('S26', 'resume tells a session that is gone what became of the ids too', async (bench) => {
    await bench.add('a', 'b')
    const node = await bench.node()
    await node.claim(2)
    await node.settle('a', 'success')
    await bench.storage.session.end(node.session, 10)
    const reply = await bench.storage.session.resume(node.session, ['a', 'b'])
    assert.deepEqual([reply.status, reply.entries], ['gone', []])
    assert.deepEqual(
      reply.tasks.map((task) => task?.state),
      ['success', 'pending'],
    )
    assert.equal(reply.tasks[0]?.settledToken, node.mark('a').token)
  })

  rule(
    'S27',
    'resume finds what a lost reply had claimed, and the next claim does not give it again',
    async (bench) => {
      await bench.add('a', 'b')
      const node = await bench.node()
      await node.work({ want: 1 })
      const reply = await bench.storage.session.resume(node.session, [])
      assert.deepEqual(idsOf(reply.entries), ['a'])
      node.ack = reply.token
      assert.deepEqual(idsOf(await node.claim(1)), ['b'])
    },
  )

  rule('S28', 'sessions of one node name are strangers to each other', async (bench) => {
    await bench.add('a')
    const [first, second] = [await bench.node(), await bench.node()]
    await first.claim(1)
    assert.deepEqual((await bench.storage.session.resume(second.session, [])).entries, [])
    await bench.storage.session.end(second.session, 10)
    await first.settle('a', 'success')
    await bench.advance(SECOND)
    assert.ok((await bench.time()) > (await bench.get('a')).since - MINUTE)
  })
}
