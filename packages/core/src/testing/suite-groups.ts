/** G: groups. A flag that cancels, a flag that pauses, and the members that it does not concern. */
import assert from 'node:assert/strict'
import type { Bench, Rule } from './harness.js'
import { ending, HOUR, ids, idsOf, OUTCOMES, SECOND, SHORT_TTL, sketch } from './sketch.js'

const RUN = { group: { id: 'run' } }
const EXEMPT = { group: { id: 'run', exempt: true } }

const setRun = (bench: Bench, flags: { cancelled?: true; paused?: boolean }): Promise<void> =>
  bench.storage.queue.setGroup(bench.ref, 'run', flags)

export function groupRules(rule: Rule): void {
  cancelRules(rule)
  pauseRules(rule)
}

function cancelRules(rule: Rule): void {
  rule(
    'G1',
    'a cancelled group ends its pending, scheduled, held and running members with GROUP_CANCELLED',
    async (bench) => {
      await bench.makeIn('running', { ...RUN, id: 'running' })
      await bench.add(
        { ...RUN, id: 'pending' },
        { ...RUN, id: 'scheduled', delay: HOUR },
        { ...RUN, id: 'held', hold: true },
      )
      await bench.add('stranger', { id: 'other', group: { id: 'run2' } })
      await setRun(bench, { cancelled: true })
      await bench.drain()
      for (const id of ['pending', 'scheduled', 'held', 'running']) {
        await bench.stands(id, 'cancelled')
        const { reason, settledToken } = await bench.get(id)
        assert.deepEqual([reason, settledToken], ['GROUP_CANCELLED', 0])
      }
      assert.deepEqual(await bench.states('stranger', 'other'), ['pending', 'pending'])
    },
  )

  rule(
    'G2',
    'who runs a member of a cancelled group is told, and its late result is stale',
    async (bench) => {
      const id = await bench.makeIn('running', RUN)
      const hand = await bench.hand()
      await hand.start(id)
      await setRun(bench, { cancelled: true })
      await bench.drain()
      const { taken, held } = await hand.work()
      assert.deepEqual(
        taken.map((notice) => ({ ...notice })),
        [{ ...hand.mark(id), reason: 'cancelled' }],
      )
      assert.equal(held, 0)
      assert.equal(await hand.isStale(id), true)
      await bench.stands(id, 'cancelled')
    },
  )

  rule('G3', 'from the step that cancels a group no member is claimed, swept or not', async (bench) => {
    const members = ids('t', 450)
    await bench.enqueue([members.map((id) => sketch({ ...RUN, id, priority: 0 })), sketch('plain')])
    const hand = await bench.node()
    await setRun(bench, { cancelled: true })
    const claimed: string[] = []
    for (let calls = 0; calls < 10; calls++) claimed.push(...idsOf(await hand.claim(5)))
    assert.deepEqual(claimed, ['plain'])
    await bench.drain()
    const counts = await bench.storage.queue.counts(bench.ref)
    assert.deepEqual([counts.cancelled, counts.pending, counts.running], [450, 0, 1])
    await bench.census()
  })

  rule('G4', 'a failure with cancelGroup sets the flag in its own step', async (bench) => {
    await bench.add({ ...RUN, id: 'first', priority: 0 }, { ...RUN, id: 'second' }, 'plain')
    await bench.add({ ...RUN, id: 'held', hold: true })
    const hand = await bench.node()
    await hand.claim(1)
    const claimed = await hand.claim(9, {
      settlements: [ending(hand.mark('first'), 'failed', { cancelGroup: true })],
    })
    assert.deepEqual(idsOf(claimed), ['plain'])
    await bench.drain()
    assert.deepEqual(await bench.states('first', 'second', 'held'), ['failed', 'cancelled', 'cancelled'])
  })

  rule('G5', 'a stale failure cancels no group', async (bench) => {
    await bench.add({ ...RUN, id: 'second' })
    const id = await bench.makeIn('running', RUN)
    const hand = await bench.hand()
    await bench.operate('revoke', id)
    assert.equal(await hand.isStale(id, 'failed', { cancelGroup: true }), true)
    await bench.drain()
    assert.deepEqual(await bench.states('second', id), ['pending', 'pending'])
    assert.deepEqual(idsOf(await hand.claim(9)).sort(), ['second', id].sort())
  })

  rule('G6', 'an exempt member is not touched by the flag, only by cancel', async (bench) => {
    await bench.makeIn('running', { ...EXEMPT, id: 'running' })
    await bench.add(
      { ...EXEMPT, id: 'pending' },
      { ...EXEMPT, id: 'held', hold: true },
      { ...EXEMPT, id: 'due', delay: SECOND },
    )
    await setRun(bench, { cancelled: true })
    await bench.drain()
    assert.deepEqual(await bench.states('running', 'pending', 'held', 'due'), [
      'running',
      'pending',
      'blocked',
      'scheduled',
    ])
    const hand = await bench.hand()
    await bench.advance(SECOND)
    assert.deepEqual(idsOf(await hand.claim(9)), ['pending', 'due'])
    await hand.settle('running', 'success')
    await bench.operate('cancel', 'held')
    await bench.stands('held', 'cancelled')
  })

  rule('G7', 'the flag holds for members that come later', async (bench) => {
    await setRun(bench, { cancelled: true })
    const outcomes = await bench.enqueue([
      sketch({ ...RUN, id: 'late' }),
      sketch({ ...RUN, id: 'delayed', delay: HOUR }),
      sketch({ ...RUN, id: 'held', hold: true }),
      sketch({ ...EXEMPT, id: 'exempt' }),
    ])
    assert.deepEqual(outcomes, ['accepted', 'accepted', 'accepted', 'accepted'])
    assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), ['exempt'])
    await bench.drain()
    assert.deepEqual(await bench.states('late', 'delayed', 'held'), ['cancelled', 'cancelled', 'cancelled'])
  })

  rule(
    'G8',
    'a blocked member of a cancelled group ends when its parents are final, whatever it waits for',
    async (bench) => {
      await bench.add({ id: 'parent', priority: 0 })
      await bench.add({ ...RUN, id: 'child', after: { ids: ['parent'], on: 'final' } })
      await bench.add({ ...EXEMPT, id: 'exempt', after: { ids: ['child'], on: 'final' } })
      await setRun(bench, { cancelled: true })
      await bench.drain()
      const hand = await bench.hand()
      await hand.claim(1)
      await hand.settle('parent', 'success')
      await bench.drain()
      assert.deepEqual(await bench.states('child', 'exempt'), ['cancelled', 'pending'])
      assert.deepEqual(idsOf(await hand.claim(9)), ['exempt'])
      await bench.census()
    },
  )

  rule(
    'G9',
    'a member that was running goes nowhere else when its group is cancelled meanwhile',
    async (bench) => {
      const names = ['retry', 'released', 'suspended', 'revoked'] as const
      const hand = await bench.hand()
      for (const id of names) await bench.makeIn('running', { ...RUN, id })
      await setRun(bench, { cancelled: true })
      for (const outcome of ['retry', 'released', 'suspended'] as const)
        await hand.isStale(outcome, outcome, { in: 0, until: 1 })
      await bench.operate('revoke', 'revoked')
      await bench.advance(SECOND)
      assert.deepEqual(await hand.claim(9), [])
      await bench.drain()
      assert.deepEqual(await bench.states(...names), ['cancelled', 'cancelled', 'cancelled', 'cancelled'])
      await bench.census()
    },
  )

  rule('G10', 'many members are swept in bounded steps, by upkeep or by claims', async (bench) => {
    const members = ids('t', 450)
    await bench.enqueue([members.map((id) => sketch({ ...RUN, id, delay: HOUR }))])
    await setRun(bench, { cancelled: true })
    assert.ok((await bench.storage.queue.counts(bench.ref)).cancelled <= 200)
    const hand = await bench.hand()
    for (let calls = 0; calls < 10; calls++) await hand.claim(1)
    assert.equal((await bench.storage.queue.counts(bench.ref)).cancelled, 450)
  })

  rule('G11', 'who waits for a member learns that its group ended it', async (bench) => {
    await bench.add({ ...RUN, id: 'task', watcher: 'me' })
    const heard = await bench.hearFinal('me')
    await setRun(bench, { cancelled: true })
    await bench.drain()
    await bench.until(
      () => heard.some((message) => message === '*' || message.split(' ').includes('task')),
      'not told',
    )
  })
}

function pauseRules(rule: Rule): void {
  rule(
    'G12',
    'members of a paused group stand aside, let others pass, and keep their place',
    async (bench) => {
      await bench.add('a', { ...RUN, id: 'b' }, { ...RUN, id: 'c' }, 'd', {
        ...RUN,
        id: 'urgent',
        priority: 0,
      })
      await setRun(bench, { paused: true })
      const hand = await bench.hand()
      assert.deepEqual(idsOf(await hand.claim(1)), ['a'])
      assert.deepEqual(idsOf(await hand.claim(9)), ['d'])
      for (const id of ['b', 'c', 'urgent']) {
        const { state, lane } = await bench.get(id)
        assert.deepEqual([state, lane], ['pending', 'group:run'])
      }
      await bench.census()
      await hand.settle('a', 'released')
      await hand.settle('d', 'released')
      await setRun(bench, { paused: false })
      assert.deepEqual(idsOf(await hand.claim(9)), ['urgent', 'a', 'b', 'c', 'd'])
    },
  )

  rule('G13', 'exempt members of a paused group run on', async (bench) => {
    await bench.add({ ...RUN, id: 'a' }, { ...EXEMPT, id: 'b' })
    await setRun(bench, { paused: true })
    assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), ['b'])
  })

  rule('G14', 'the pause holds for members that come later, become due, or are given back', async (bench) => {
    const hand = await bench.hand()
    const mortal = await bench.node({ ttl: SHORT_TTL })
    await bench.add({ ...RUN, id: 'given' }, { ...RUN, id: 'lost' }, { ...RUN, id: 'due', delay: SECOND })
    await hand.claim(1)
    await mortal.claim(1)
    await setRun(bench, { paused: true })
    await bench.add({ ...RUN, id: 'late' })
    await hand.settle('given', 'released')
    await bench.lose(mortal)
    assert.deepEqual(await hand.claim(9), [])
    await bench.drain()
    assert.deepEqual(await bench.states('given', 'lost', 'late', 'due'), [
      'pending',
      'pending',
      'pending',
      'pending',
    ])
    assert.deepEqual(await hand.claim(9), [])
    await setRun(bench, { paused: false })
    assert.deepEqual(idsOf(await hand.claim(9)), ['given', 'lost', 'late', 'due'])
  })

  rule('G15', 'a running member goes on while its group is paused', async (bench) => {
    const id = await bench.makeIn('running', RUN)
    await setRun(bench, { paused: true })
    const hand = await bench.hand()
    assert.deepEqual((await hand.work()).taken, [])
    await hand.settle(id, 'success')
  })

  rule(
    'G16',
    'members that stand aside can be cancelled, removed, and moved to another priority',
    async (bench) => {
      await bench.add(...['a', 'b', 'c', 'd'].map((id) => ({ ...RUN, id })))
      await setRun(bench, { paused: true })
      const hand = await bench.hand()
      await hand.claim(9)
      await bench.operate('cancel', 'a')
      await bench.operate('remove', 'b')
      await bench.storage.queue.reprioritize(bench.ref, ['d'], 0)
      assert.deepEqual(await bench.states('a', 'b', 'c', 'd'), ['cancelled', 'unknown', 'pending', 'pending'])
      await bench.census()
      await setRun(bench, { paused: false })
      assert.deepEqual(idsOf(await hand.claim(9)), ['d', 'c'])
    },
  )

  rule('G17', 'a paused group can be cancelled', async (bench) => {
    await bench.add({ ...RUN, id: 'a' }, { ...RUN, id: 'b' })
    await setRun(bench, { paused: true })
    await (await bench.hand()).claim(9)
    await setRun(bench, { cancelled: true })
    await bench.drain()
    await bench.stands('a', 'cancelled')
    await bench.stands('b', 'cancelled')
  })

  rule('G18', 'a flag that is not given stays as it is', async (bench) => {
    await bench.add({ ...RUN, id: 'a' })
    await setRun(bench, { paused: true })
    await setRun(bench, {})
    assert.deepEqual(await (await bench.hand()).claim(9), [])
    await setRun(bench, { cancelled: true })
    await setRun(bench, { paused: false })
    await bench.drain()
    await bench.add({ ...RUN, id: 'b' })
    await bench.drain()
    assert.deepEqual(await bench.states('a', 'b'), ['cancelled', 'cancelled'])
  })

  rule(
    'G19',
    'a member of a paused group and of a kind that nobody serves comes out of both in any order',
    async (bench) => {
      await bench.add({ ...RUN, id: 'task', kind: 'rare' }, 'plain')
      const [plain, rare] = [await bench.hand(), await bench.node({ kinds: ['rare'] })]
      await plain.claim(1)
      await setRun(bench, { paused: true })
      await plain.claim(1)
      assert.deepEqual(await rare.claim(1), [])
      await bench.stands('task', 'pending')
      await setRun(bench, { paused: false })
      assert.deepEqual(await plain.claim(1), [])
      assert.deepEqual(idsOf(await rare.claim(1)), ['task'])
    },
  )

  rule('G20', 'a member that is held ends with its group, though it waits for others too', async (bench) => {
    await bench.add({ id: 'parent', priority: 0 })
    const held = { ...RUN, hold: true, after: { ids: ['parent'], on: 'final' } } as const
    await bench.add({ ...held, id: 'early' })
    await setRun(bench, { cancelled: true })
    await bench.add({ ...held, id: 'late' })
    await bench.drain()
    for (const id of ['early', 'late']) assert.equal((await bench.get(id)).reason, 'GROUP_CANCELLED')
    await bench.census()
  })

  rule('G21', 'a member of a cancelled group that is retried ends with it again', async (bench) => {
    const id = await bench.makeIn('failed', RUN)
    await setRun(bench, { cancelled: true })
    assert.equal(await bench.operate('retry', id), 'done')
    await bench.drain()
    await bench.stands(id, 'cancelled')
    assert.equal((await bench.get(id)).reason, 'GROUP_CANCELLED')
    assert.deepEqual(await (await bench.hand()).claim(1), [])
  })

  for (const on of ['success', 'final'] as const) {
    rule(
      `G-chain-${on}`,
      `members of which one waits for the ${on === 'final' ? 'end' : 'success'} of another are ended once each`,
      async (bench) => {
        await bench.add({ ...RUN, id: 'parent', hold: true })
        await bench.add({ ...RUN, id: 'child', hold: true, after: { ids: ['parent'], on } })
        await bench.add({ id: 'next', after: { ids: ['child'], on: 'final' } })
        await setRun(bench, { cancelled: true })
        await bench.drain()
        assert.deepEqual(await bench.states('parent', 'child', 'next'), ['cancelled', 'cancelled', 'pending'])
        await bench.census()
      },
    )
  }

  for (const outcome of OUTCOMES) {
    rule(
      `G-settle-${outcome}`,
      `a member that settles ${outcome} in the call that cancels its group has one end`,
      async (bench) => {
        await bench.add({ ...RUN, id: 'first' }, { ...RUN, id: 'second' })
        const hand = await bench.node()
        await hand.claim(2)
        const reply = await hand.work({
          settlements: [
            ending(hand.mark('first'), 'failed', { cancelGroup: true }),
            ending(hand.mark('second'), outcome),
          ],
        })
        await bench.drain()
        const isFinal = ['success', 'failed', 'cancelled', 'skipped'].includes(outcome)
        const state = reply.stale.length === 0 && isFinal ? outcome : 'cancelled'
        assert.deepEqual(await bench.states('first', 'second'), ['failed', state])
        assert.equal(reply.held, 0)
        await bench.census()
      },
    )
  }
}
