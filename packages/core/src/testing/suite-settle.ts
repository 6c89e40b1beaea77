/** W: settlements. What each outcome does, what a repeat does, and when one is stale. */
import assert from 'node:assert/strict'
import type { Encoded } from '../storage.js'
import { TASK_STATES } from '../task.js'
import type { TaskState } from '../task.js'
import type { BenchNode } from './bench-node.js'
import type { Bench, Rule } from './harness.js'
import { DAY, ending, ids, idsOf, MINUTE, OUTCOMES, SECOND, SHORT_TTL } from './sketch.js'
import { PAYLOADS } from './suite-enqueue.js'
/** A task that a node held once and lost by a revoke; another life took it to the state since. */
async function lostAndThen(bench: Bench, state: TaskState): Promise<{ node: BenchNode; id: string }> {
  const node = await bench.node()
  const id = await bench.makeIn('pending')
  await node.claim(1)
  await bench.operate('revoke', id)
  const hand = await bench.hand()
  if (state === 'cancelled') await bench.operate('cancel', id)
  else if (state !== 'pending') {
    await hand.claim(1)
    if (state === 'scheduled') await hand.settle(id, 'retry')
    else if (state === 'blocked') {
      await bench.add({ id: 'other', delay: DAY })
      await hand.settle(id, 'suspended', { after: { ids: ['other'], on: 'final' } })
    } else if (state !== 'running') await hand.settle(id, state, { result: '"by the later one"' })
  }
  assert.equal(await bench.stateOf(id), state)
  return { node, id }
}

export function settleRules(rule: Rule): void {
  outcomeRules(rule)
  staleRules(rule)
}

function outcomeRules(rule: Rule): void {
  rule(
    'W-settle-success',
    'success stores the result, its codec, the duration and the token',
    async (bench) => {
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      await hand.settle(id, 'success', { result: '"fine"', codec: 'text', duration: 12 })
      const { state, result, resultCodec, duration, settledToken, attempts, started, session } =
        await bench.get(id)
      assert.deepEqual(
        { state, result, resultCodec, duration, settledToken, attempts, started, session },
        {
          state: 'success',
          result: '"fine"',
          resultCodec: 'text',
          duration: 12,
          settledToken: hand.mark(id).token,
          attempts: 1,
          started: false,
          session: undefined,
        },
      )
      assert.equal((await hand.work()).held, 0)
    },
  )

  rule('W-settle-failed', 'failed stores the error and counts the attempt', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    await hand.settle(id, 'failed', { error: '{"message":"no"}', duration: 7 })
    const { state, error, duration, settledToken, attempts, result } = await bench.get(id)
    assert.deepEqual(
      { state, error, duration, settledToken, attempts, result },
      {
        state: 'failed',
        error: '{"message":"no"}',
        duration: 7,
        settledToken: hand.mark(id).token,
        attempts: 1,
        result: undefined,
      },
    )
  })

  rule('W-settle-retry', 'retry makes the task due later and counts the attempt', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    await hand.settle(id, 'retry', { in: SECOND, error: '"first"' })
    const { state, error, settledToken, attempts, dueAt, since } = await bench.get(id)
    assert.deepEqual(
      { state, error, settledToken, attempts, dueAt },
      {
        state: 'scheduled',
        error: '"first"',
        settledToken: hand.mark(id).token,
        attempts: 1,
        dueAt: since + SECOND,
      },
    )
    assert.deepEqual(await hand.claim(1), [])
    await bench.advance(SECOND)
    const [claimed] = await hand.claim(1)
    assert.deepEqual([claimed?.id, claimed?.attempts], [id, 1])
    await hand.settle(id, 'success')
    assert.equal((await bench.get(id)).attempts, 2)
  })

  for (const outcome of ['cancelled', 'skipped'] as const) {
    rule(
      `W-settle-${outcome}`,
      `${outcome} stores the reason and the message, and counts no attempt`,
      async (bench) => {
        const id = await bench.makeIn('running')
        const hand = await bench.hand()
        await hand.settle(id, outcome, { reason: 'TASK_TIMEOUT', message: 'too slow' })
        const { state, reason, message, settledToken, attempts } = await bench.get(id)
        assert.deepEqual(
          { state, reason, message, settledToken, attempts },
          {
            state: outcome,
            reason: 'TASK_TIMEOUT',
            message: 'too slow',
            settledToken: hand.mark(id).token,
            attempts: 0,
          },
        )
      },
    )
  }

  rule('W-settle-released', 'released costs nothing and keeps the place', async (bench) => {
    await bench.add('a', 'b', 'c')
    const hand = await bench.hand()
    await hand.claim(2)
    await hand.start('a', 'b')
    await hand.settle('b', 'released')
    await hand.settle('a', 'released')
    const { state, settledToken, attempts, reclaims, started } = await bench.get('a')
    assert.deepEqual(
      { state, settledToken, attempts, reclaims, started },
      { state: 'pending', settledToken: hand.mark('a').token, attempts: 0, reclaims: 0, started: false },
    )
    const claimed = await hand.claim(9)
    assert.deepEqual(idsOf(claimed), ['a', 'b', 'c'])
    assert.deepEqual([claimed[0]?.probation, claimed[0]?.attempts], [false, 0])
  })

  rule('W9', 'results come back as they were, also those that look like nothing', async (bench) => {
    const hand = await bench.hand()
    for (const [index, given] of PAYLOADS.entries()) {
      const id = `t${index}`
      await bench.add(id)
      await hand.claim(1)
      await hand.settle(id, 'success', { result: given })
      const [watched] = await bench.storage.queue.watch(bench.ref, [id], { watcher: 'me', ttl: MINUTE })
      const found: (Encoded | undefined)[] = [(await bench.get(id)).result]
      if (typeof watched === 'object') found.push(watched.result)
      found.push((await bench.list({ state: 'success' })).find((task) => task.id === id)?.result)
      assert.equal(found.length, 3)
      for (const result of found) {
        assert.equal(typeof result, typeof given)
        assert.deepEqual(
          typeof result === 'string' ? result : [...(result ?? [])],
          typeof given === 'string' ? given : [...given],
        )
      }
    }
  })

  for (const outcome of OUTCOMES) {
    rule(
      `W-repeat-${outcome}`,
      `a settlement ${outcome} that comes twice is accepted twice and counts once`,
      async (bench) => {
        const id = await bench.makeIn('running')
        const hand = await bench.hand()
        await hand.settle(id, outcome)
        const before = [
          await bench.get(id),
          await bench.storage.queue.history(bench.ref, { from: 0, to: 8.64e15 }),
        ]
        await bench.advance(5)
        await hand.settle(id, outcome)
        const after = [
          await bench.get(id),
          await bench.storage.queue.history(bench.ref, { from: 0, to: 8.64e15 }),
        ]
        assert.deepEqual(after, before)
        await bench.census()
      },
    )
  }

  rule('W10', 'of two ends of one attempt the first holds', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const mark = hand.mark(id)
    await hand.work({ settlements: [ending(mark, 'success', { result: '"first"' }), ending(mark, 'failed')] })
    await hand.work({ settlements: [ending(mark, 'retry')] })
    const { state, result, error, attempts } = await bench.get(id)
    assert.deepEqual(
      { state, result, error, attempts },
      { state: 'success', result: '"first"', error: undefined, attempts: 1 },
    )
    await bench.stands(id, 'success')
  })

  rule('W11', 'a call settles many tasks, and those that are stale are named one by one', async (bench) => {
    const names = ids('t', 6)
    await bench.add(...names)
    const hand = await bench.hand()
    await hand.claim(6)
    await bench.storage.queue.cancel(bench.ref, ['t0001', 't0004'])
    const reply = await hand.work({ settlements: names.map((id) => ending(hand.mark(id), 'success')) })
    assert.deepEqual(reply.stale, [1, 4])
    assert.deepEqual(await bench.states(...names), [
      'success',
      'cancelled',
      'success',
      'success',
      'cancelled',
      'success',
    ])
  })

  rule('W12', 'a settlement with another session or another token is stale', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const { token } = hand.mark(id)
    const other = await bench.node()
    assert.deepEqual((await other.work({ settlements: [ending({ id, token }, 'success')] })).stale, [0])
    for (const wrong of [token - 1, token + 1, 0]) {
      assert.deepEqual(
        (await hand.work({ settlements: [ending({ id, token: wrong }, 'success')] })).stale,
        [0],
      )
    }
    assert.deepEqual(
      (await hand.work({ settlements: [ending({ id: 'nobody', token }, 'success')] })).stale,
      [0],
    )
    await bench.stands(id, 'running')
    await hand.settle(id, 'success')
  })

  rule('W13', 'a late repeat of released does not take the next claim away', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const late = [ending(hand.mark(id), 'released')]
    await hand.work({ settlements: late })
    const other = await bench.node()
    await other.claim(1)
    await hand.work({ settlements: late })
    await bench.stands(id, 'running')
    await other.settle(id, 'success')
    await hand.work({ settlements: late })
    await bench.stands(id, 'success')
  })

  rule('W14', 'the same, when the session itself has claimed the task again', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    const late = [ending(hand.mark(id), 'retry', { in: 0 })]
    await hand.work({ settlements: late })
    await bench.advance(5)
    await hand.claim(1)
    await hand.work({ settlements: late })
    await bench.stands(id, 'running')
    assert.equal((await bench.get(id)).attempts, 1)
    await hand.settle(id, 'success')
  })
}

function staleRules(rule: Rule): void {
  for (const state of TASK_STATES) {
    rule(
      `W-stale-${state}`,
      `the settlement of a claim that was lost is stale when the task is ${state}`,
      async (bench) => {
        const { node, id } = await lostAndThen(bench, state)
        const before = await bench.get(id)
        for (const outcome of OUTCOMES) {
          assert.equal(await node.isStale(id, outcome), true, `${outcome} is accepted`)
          assert.deepEqual(await bench.get(id), before)
        }
        await bench.stands(id, state)
      },
    )
  }

  rule('W15', 'no late settlement revives a cancelled task', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    await bench.operate('cancel', id)
    for (const outcome of OUTCOMES) assert.equal(await hand.isStale(id, outcome), true)
    await bench.stands(id, 'cancelled')
    await bench.operate('retry', id)
    for (const outcome of OUTCOMES) assert.equal(await hand.isStale(id, outcome), true)
    await bench.stands(id, 'pending')
  })

  rule(
    'W16',
    'no late settlement of a lapsed or ended session is accepted, whoever holds the task',
    async (bench) => {
      await bench.add('a', 'b')
      const [lapsed, ended, hand] = [
        await bench.node({ ttl: SHORT_TTL }),
        await bench.node(),
        await bench.hand(),
      ]
      await lapsed.claim(1)
      await ended.claim(1)
      await bench.lose(lapsed)
      await bench.storage.session.end(ended.session, 10)
      for (let turn = 0; turn < 2; turn++) {
        assert.equal(await lapsed.isStale('a'), true)
        assert.equal(await ended.isStale('b'), true)
        assert.deepEqual(await bench.states('a', 'b'), turn ? ['running', 'running'] : ['pending', 'pending'])
        await hand.claim(2)
      }
      await hand.settle('a', 'success')
      await hand.settle('b', 'success')
    },
  )

  rule('W17', 'a settlement of a removed task is stale and brings nothing back', async (bench) => {
    const id = await bench.makeIn('running')
    await bench.operate('cancel', id)
    await bench.operate('remove', id)
    assert.equal(await (await bench.hand()).isStale(id), true)
    assert.equal((await bench.census()).size, 0)
  })

  rule(
    'W18',
    'what others decide leaves the settled token alone, and a record that they make has token 0',
    async (bench) => {
      const id = await bench.makeIn('running')
      const hand = await bench.hand()
      await hand.settle(id, 'retry', { in: 0 })
      const { token } = hand.mark(id)
      await bench.advance(SECOND)
      await hand.claim(1)
      await bench.operate('revoke', id)
      assert.equal((await bench.get(id)).settledToken, token)
      await bench.operate('cancel', id)
      assert.equal((await bench.get(id)).settledToken, 0)
    },
  )
}
