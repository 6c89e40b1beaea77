/** C: the claim, its tokens, and what happens when its reply is lost. */
import assert from 'node:assert/strict'
import type { Rule } from './harness.js'
import { ending, HOUR, ids, idsOf, MINUTE, SECOND } from './sketch.js'

export function claimRules(rule: Rule): void {
  rule('C1', 'a claim takes no more than it wants, and nothing when it wants nothing', async (bench) => {
    await bench.add(...ids('t', 5))
    const hand = await bench.hand()
    assert.deepEqual((await hand.work({ want: 0 })).claimed, [])
    assert.deepEqual(idsOf(await hand.claim(2)), ['t0000', 't0001'])
    assert.deepEqual(idsOf(await hand.claim(9)), ['t0002', 't0003', 't0004'])
    assert.deepEqual(await hand.claim(9), [])
    assert.equal((await hand.work()).held, 5)
  })

  rule('C2', 'a claimed task brings all that is needed to run it', async (bench) => {
    const payload = new Uint8Array([1, 2, 0, 255])
    await bench.add({ id: 'task', payload, codec: 'raw', options: '{"timeout":5}', priority: 7 })
    const [task] = await (await bench.hand()).claim(1)
    assert.ok(task)
    const { id, kind, codec, options, priority, attempts, reclaims, probation, checkpoint, timedOut } = task
    assert.deepEqual(
      {
        id,
        kind,
        codec,
        options,
        priority,
        attempts,
        reclaims,
        probation,
        checkpoint,
        timedOut: timedOut ?? false,
      },
      {
        id: 'task',
        kind: 'job',
        codec: 'raw',
        options: '{"timeout":5}',
        priority: 7,
        attempts: 0,
        reclaims: 0,
        probation: false,
        checkpoint: undefined,
        timedOut: false,
      },
    )
    assert.deepEqual([...(task.payload as Uint8Array)], [...payload])
    assert.deepEqual(task.parents ?? [], [])
  })

  rule(
    'C3',
    'all tasks of a claim share one token, and each claim has a larger one, whoever makes it',
    async (bench) => {
      await bench.add(...ids('t', 6))
      const [one, other] = [await bench.node(), await bench.node()]
      let last = 0
      for (const node of [one, other, other]) {
        const reply = await node.work({ want: 2 })
        node.learn(reply)
        assert.equal(reply.claimed.length, 2)
        for (const task of reply.claimed) assert.equal(task.token, reply.token)
        assert.ok(reply.token > last)
        last = reply.token
      }
    },
  )

  rule('C4', 'the tokens of one task grow with every claim', async (bench) => {
    await bench.add('task')
    let last = 0
    for (let turn = 0; turn < 4; turn++) {
      const node = await bench.node()
      const [task] = await node.claim(1)
      assert.ok(task && task.token > last)
      last = task.token
      await node.settle('task', 'released')
    }
  })

  rule(
    'C5',
    'a claim whose reply was lost is answered again, with those entries and nothing else',
    async (bench) => {
      await bench.add(...ids('t', 4))
      const hand = await bench.hand()
      const lost = await hand.work({ want: 2 })
      for (let turn = 0; turn < 2; turn++) {
        const again = await hand.work({ want: 5 })
        assert.equal(again.status, 'again')
        assert.deepEqual(idsOf(again.claimed).sort(), ['t0000', 't0001'])
        for (const task of again.claimed) {
          const first = lost.claimed.find((one) => one.id === task.id)
          // How long it waited may be told anew.
          assert.deepEqual({ ...task, waited: 0 }, { ...first, waited: 0 })
        }
        assert.deepEqual([again.token, again.held], [lost.token, 2])
      }
      hand.learn(await hand.work({ want: 5 }))
      assert.deepEqual(idsOf(await hand.claim(5)), ['t0002', 't0003'])
      await hand.settle('t0000', 'success')
    },
  )

  rule('C6', 'again gives only what is newer than the acknowledged claim and still held', async (bench) => {
    await bench.add(...ids('t', 5))
    const hand = await bench.hand()
    await hand.claim(1)
    const lost = await hand.work({ want: 3 })
    await bench.operate('cancel', 't0001')
    const again = await hand.work({
      want: 5,
      settlements: [ending({ id: 't0002', token: lost.token }, 'success')],
    })
    assert.deepEqual([again.status, again.stale, idsOf(again.claimed)], ['again', [], ['t0003']])
  })

  rule('C7', 'a request that comes twice, or late, claims once', async (bench) => {
    await bench.add(...ids('t', 6))
    const hand = await bench.hand()
    const [first, second] = [await hand.work({ want: 2 }), await hand.work({ want: 2 })]
    assert.deepEqual([first.status, second.status], ['ok', 'again'])
    assert.deepEqual(idsOf(second.claimed).sort(), idsOf(first.claimed))
    const late = hand.ack
    hand.learn(first)
    await hand.claim(2)
    const repeat = await hand.work({ want: 2, ack: late })
    assert.equal(repeat.status, 'again')
    assert.equal((await hand.work()).held, 4)
    assert.equal((await bench.storage.queue.counts(bench.ref)).pending, 2)
  })

  rule('C8', 'when every entry of the lost claim is settled, the next claim goes on', async (bench) => {
    await bench.add('a', 'b')
    const hand = await bench.hand()
    const lost = await hand.work({ want: 1 })
    await hand.work({ settlements: [ending({ id: 'a', token: lost.token }, 'success')] })
    const again = await hand.work({ want: 1 })
    hand.learn(again)
    const claimed = again.status === 'again' ? await hand.claim(1) : again.claimed
    assert.deepEqual(idsOf(claimed), ['b'])
  })

  rule(
    'C9',
    'a claim ends before its payload bytes are more than wanted, but never without a first task',
    async (bench) => {
      await bench.add({ id: 'large', payload: 'x'.repeat(5000) })
      await bench.add(...ids('t', 4).map((id) => ({ id, payload: new Uint8Array(1000) })))
      const hand = await bench.hand()
      assert.deepEqual(idsOf(await hand.claim(9, { wantBytes: 100 })), ['large'])
      assert.deepEqual(idsOf(await hand.claim(9, { wantBytes: 2500 })), ['t0000', 't0001'])
      assert.deepEqual(idsOf(await hand.claim(9, { wantBytes: 2500 })), ['t0002', 't0003'])
    },
  )

  rule('C10', 'a claim takes 1 MiB of payload at most unless it wants more', async (bench) => {
    await bench.add(...ids('t', 4).map((id) => ({ id, payload: 'x'.repeat(400 * 1024) })))
    const hand = await bench.hand()
    assert.equal((await hand.claim(9)).length, 2)
    assert.equal((await hand.claim(9, { wantBytes: 4 * 1024 * 1024 })).length, 2)
  })

  rule('C11', 'a claim may be for more urgent tasks only', async (bench) => {
    await bench.add({ id: 'a', priority: 0 }, { id: 'b', priority: 1 }, { id: 'c', priority: 2 })
    const hand = await bench.hand()
    assert.deepEqual(await hand.claim(9, { moreUrgentThan: 0 }), [])
    assert.deepEqual(idsOf(await hand.claim(9, { moreUrgentThan: 2 })), ['a', 'b'])
    assert.deepEqual(idsOf(await hand.claim(9)), ['c'])
  })

  rule(
    'C12',
    'a session claims only the kinds that it serves, the nameless one only when it says so',
    async (bench) => {
      await bench.add(
        { id: 'a', kind: '' },
        { id: 'b', kind: 'job' },
        { id: 'c', kind: 'job2' },
        { id: 'd', kind: 'JOB' },
      )
      assert.deepEqual(idsOf(await (await bench.node({ kinds: ['job'] })).claim(9)), ['b'])
      assert.deepEqual(idsOf(await (await bench.node({ kinds: ['', 'JOB'] })).claim(9)), ['a', 'd'])
      assert.deepEqual(await (await bench.node({ kinds: [] })).claim(9), [])
      assert.equal(await bench.stateOf('c'), 'pending')
    },
  )

  rule('C13', 'many tasks of kinds that nobody here serves do not hide the others', async (bench) => {
    await bench.enqueue([
      ids('rare', 500).map((id) => ({ id, kind: 'rare', payload: '', codec: 'json', priority: 0 })),
    ])
    await bench.add('plain')
    const hand = await bench.hand()
    let claimed: string[] = []
    for (let calls = 0; calls < 20 && claimed.length === 0; calls++) claimed = idsOf(await hand.claim(1))
    assert.deepEqual(claimed, ['plain'])
    const rare = await bench.node({ kinds: ['rare'] })
    assert.deepEqual(idsOf(await rare.claimAll()), ids('rare', 500))
  })

  rule('C14', 'sessions that claim at once, in any process, never get the same task', async (bench) => {
    const names = ids('t', 60)
    await bench.enqueue([names.map((id) => ({ id, kind: 'job', payload: id, codec: 'json', priority: 2 }))])
    const peer = await bench.peer()
    const nodes = await Promise.all([1, 2, 3, 4].map(() => bench.node()))
    const claims: string[] = []
    const run = async (index: number): Promise<void> => {
      const node = nodes[index % 4]?.through(index % 2 ? peer : bench.storage)
      for (;;) {
        const claimed = (await node?.claim(3)) ?? []
        if (claimed.length === 0) return
        claims.push(...idsOf(claimed))
      }
    }
    await Promise.all([0, 1, 2, 3].map(run))
    assert.deepEqual(claims.sort(), names)
  })

  rule('C15', 'a claim may want as many as the limits say', async (bench) => {
    const { work } = bench.storage.limits
    const names = ids('t', Math.min(work, 500))
    await bench.enqueue([names.map((id) => ({ id, kind: 'job', payload: '', codec: 'json', priority: 2 }))])
    const hand = await bench.hand()
    assert.deepEqual(idsOf(await hand.claim(names.length)), names)
    const reply = await hand.work({ settlements: names.map((id) => ending(hand.mark(id), 'success')) })
    assert.deepEqual(reply.stale, [])
    assert.equal((await bench.storage.queue.counts(bench.ref)).success, names.length)
  })

  rule('C16', 'a claimed task tells how long it was ready', async (bench) => {
    await bench.add('task')
    await bench.advance(SECOND)
    const [task] = await (await bench.hand()).claim(1)
    assert.ok(task && task.waited >= SECOND && task.waited < 30 * SECOND, `waited ${task?.waited}`)
    const late = await bench.makeIn('scheduled', { delay: SECOND })
    await bench.advance(SECOND)
    const [due] = await (await bench.hand()).claim(1)
    assert.equal(due?.id, late)
    assert.ok(due.waited < SECOND, `the delay counts as waiting: ${due.waited}`)
  })

  rule('C17', 'a claim brings the parents with their final states', async (bench) => {
    for (const state of ['success', 'failed', 'cancelled', 'skipped'] as const) {
      await bench.makeIn(state, { id: `was-${state}` })
    }
    const before = ['was-success', 'was-failed', 'was-cancelled', 'was-skipped']
    await bench.add({ id: 'open', priority: 0 })
    await bench.add({ id: 'child', after: { ids: [...before, 'open'], on: 'final' } })
    const hand = await bench.hand()
    await hand.claim(1)
    await hand.settle('open', 'success')
    const [child] = await hand.claim(1)
    assert.deepEqual(
      new Map(child?.parents?.map((parent) => [parent.id, parent.state])),
      new Map<string, string>([
        ['was-success', 'success'],
        ['was-failed', 'failed'],
        ['was-cancelled', 'cancelled'],
        ['was-skipped', 'skipped'],
        ['open', 'success'],
      ]),
    )
  })

  rule(
    'C18',
    'a reply that claims says in how many ms the next task is due or the next deadline passes',
    async (bench) => {
      const hand = await bench.hand()
      assert.equal((await hand.work({ want: 1 })).nextDueIn, undefined)
      await bench.add({ id: 'late', delay: HOUR })
      const far = (await hand.work({ want: 1 })).nextDueIn ?? 0
      assert.ok(far > HOUR - MINUTE && far <= HOUR, `next due in ${far}`)
      await bench.add({ id: 'held', hold: true, expiresIn: MINUTE })
      const near = (await hand.work({ want: 1 })).nextDueIn ?? 0
      assert.ok(near > 0 && near <= MINUTE, `next deadline in ${near}`)
      await bench.storage.queue.cancel(bench.ref, ['late', 'held'])
      assert.equal((await hand.work({ want: 1 })).nextDueIn, undefined)
    },
  )

  rule(
    'C19',
    'a reply that claims says how urgent the most urgent task is that is still ready',
    async (bench) => {
      const hand = await bench.hand()
      await bench.add({ id: 'a', priority: 1 }, { id: 'b', priority: 3 }, { id: 'c', priority: 5 })
      const heads: (number | undefined)[] = []
      for (let turn = 0; turn < 3; turn++) {
        const reply = await hand.work({ want: 1 })
        hand.learn(reply)
        heads.push(reply.head)
      }
      assert.deepEqual(heads, [3, 5, undefined])
    },
  )

  rule('C20', 'due tasks join their priority before a claim takes the first ones', async (bench) => {
    await bench.add({ id: 'urgent', priority: 0, delay: SECOND }, 'plain')
    await bench.advance(SECOND)
    assert.deepEqual(idsOf(await (await bench.hand()).claim(1)), ['urgent'])
  })

  rule('C21', 'claims alone, without upkeep, bring all tasks that are due, however many', async (bench) => {
    const names = ids('t', 450)
    await bench.enqueue([
      names.map((id) => ({ id, kind: 'job', payload: '', codec: 'json', priority: 2, delay: SECOND })),
    ])
    await bench.advance(2 * SECOND)
    assert.deepEqual(idsOf(await (await bench.hand()).claimAll()).sort(), names)
  })

  rule(
    'C22',
    'what is due becomes ready although the claim finds that its own session is over',
    async (bench) => {
      const node = await bench.node({ ttl: 10 * SECOND })
      await bench.add({ id: 'a', delay: SECOND })
      await bench.advance(6 * SECOND)
      await bench.storage.upkeep.reclaim(10)
      await bench.advance(5 * SECOND)
      assert.equal((await node.work({ want: 1 })).status, 'gone')
      const [record] = await bench.storage.queue.get(bench.ref, ['a'])
      assert.equal(record?.state, 'pending')
    },
  )
  rule('C23', 'of tasks that are due together a claim takes the most urgent first', async (bench) => {
    await bench.add(...ids('t', 6).map((id) => ({ id, delay: SECOND })))
    await bench.add({ id: 'urgent', priority: 0, delay: 2 * SECOND })
    await bench.advance(3 * SECOND)
    const hand = await bench.hand()
    assert.deepEqual(idsOf(await hand.claim(1)), ['urgent'])
    assert.deepEqual(idsOf(await hand.claim(9)), ids('t', 6))
    await bench.add({ id: 'a', delay: SECOND }, { id: 'b', priority: 0, delay: 2 * SECOND })
    await bench.advance(3 * SECOND)
    assert.deepEqual(idsOf(await hand.claim(9)), ['b', 'a'])
  })

  rule('C24', 'tasks that were due together keep their order when they come back', async (bench) => {
    const names = ids('t', 6)
    // Those that are due first were submitted last.
    await bench.add(...names.map((id, i) => ({ id, delay: (i + 1) * SECOND })).reverse())
    await bench.advance(9 * SECOND)
    const hand = await bench.hand()
    assert.deepEqual(idsOf(await hand.claim(6)), names)
    await bench.add('new')
    for (const id of names) await hand.settle(id, 'released')
    assert.deepEqual(idsOf(await hand.claim(9)), [...names, 'new'])
  })

  rule('C25', 'a claim that leaves due tasks says how urgent they are', async (bench) => {
    await bench.add(...ids('t', 3).map((id) => ({ id, priority: 3, delay: SECOND })))
    await bench.advance(SECOND)
    const reply = await (await bench.hand()).work({ want: 2 })
    assert.equal(reply.claimed.length, 2)
    assert.equal(reply.head, 3)
  })

  rule('C26', 'a claim of due tasks ends before its payload bytes are more than wanted', async (bench) => {
    await bench.add(...ids('t', 4).map((id) => ({ id, payload: 'x'.repeat(900), delay: SECOND })))
    await bench.advance(SECOND)
    const hand = await bench.hand()
    assert.deepEqual(idsOf(await hand.claim(9, { wantBytes: 2000 })), ['t0000', 't0001'])
    assert.deepEqual(idsOf(await hand.claim(9, { wantBytes: 1 })), ['t0002'])
  })
}
