/** D: tasks that wait for others. */
import assert from 'node:assert/strict'
import type { FinalState } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { codeOf, DAY, ids, idsOf, MINUTE, SECOND, sketch } from './sketch.js'

const FINAL_STATES: readonly FinalState[] = ['success', 'failed', 'cancelled', 'skipped']

/** Ends a pending task of priority 0 in one of the four ways. */
async function end(bench: Bench, id: string, state: FinalState): Promise<void> {
  const hand = await bench.hand()
  assert.deepEqual(idsOf(await hand.claim(1)), [id])
  await hand.settle(id, state)
}

/** `count` tasks that wait for one parent, and the parent, claimed. */
async function fan(bench: Bench, count: number, on: 'success' | 'final' = 'success'): Promise<string[]> {
  await bench.makeIn('running', { id: 'parent' })
  const children = ids('child', count)
  await bench.enqueue([children.map((id) => sketch({ id, after: { ids: ['parent'], on } }))])
  assert.equal((await bench.storage.queue.counts(bench.ref)).blocked, count)
  return children
}

export function dependencyRules(rule: Rule): void {
  edgeRules(rule)
  cascadeRules(rule)
}

function edgeRules(rule: Rule): void {
  for (const on of ['success', 'final'] as const) {
    for (const state of FINAL_STATES) {
      const runs = on === 'final' || state === 'success'
      const what = runs ? 'is ready' : 'ends cancelled with DEPENDENCY_FAILED'
      const check = async (bench: Bench): Promise<void> => {
        await bench.stands('child', runs ? 'pending' : 'cancelled')
        const { reason, settledToken } = await bench.get('child')
        assert.deepEqual([reason, settledToken], [runs ? undefined : 'DEPENDENCY_FAILED', 0])
      }
      rule(
        `D-${on}-${state}-later`,
        `a child that waits for ${on} ${what} when its parent ends ${state}`,
        async (bench) => {
          await bench.add({ id: 'parent', priority: 0 }, { id: 'child', after: { ids: ['parent'], on } })
          await end(bench, 'parent', state)
          await check(bench)
        },
      )
      rule(
        `D-${on}-${state}-before`,
        `a child that waits for ${on} ${what} when its parent was ${state} before`,
        async (bench) => {
          await bench.makeIn(state, { id: 'parent' })
          await bench.add({ id: 'child', after: { ids: ['parent'], on } })
          await check(bench)
        },
      )
    }
  }

  rule('D1', 'a child is released when the last of its parents is final, and not before', async (bench) => {
    await bench.add(...['a', 'b', 'c'].map((id) => ({ id, priority: 0 })))
    await bench.add({ id: 'child', after: { ids: ['a', 'b', 'c'], on: 'success' } })
    for (const [index, id] of ['a', 'b', 'c'].entries()) {
      await bench.stands('child', 'blocked')
      assert.equal((await bench.get('child')).waitsFor?.length, 3 - index)
      await end(bench, id, 'success')
    }
    await bench.stands('child', 'pending')
  })

  rule('D2', 'one failed parent is enough to end a child that needs their success', async (bench) => {
    await bench.add({ id: 'a', priority: 0 }, { id: 'b', delay: DAY })
    await bench.add({ id: 'child', after: { ids: ['a', 'b'], on: 'success' } })
    await end(bench, 'a', 'failed')
    await bench.stands('child', 'cancelled')
    assert.equal(await bench.operate('cancel', 'b'), 'done')
    await bench.stands('child', 'cancelled')
  })

  rule('D3', 'an end goes down a whole chain', async (bench) => {
    await bench.add({ id: 'a', priority: 0 })
    await bench.add({ id: 'b', after: { ids: ['a'], on: 'success' } })
    await bench.add({ id: 'c', after: { ids: ['b'], on: 'success' } })
    await bench.add({ id: 'd', after: { ids: ['c'], on: 'final' } })
    await end(bench, 'a', 'failed')
    await bench.drain()
    assert.deepEqual(await bench.states('a', 'b', 'c', 'd'), ['failed', 'cancelled', 'cancelled', 'pending'])
    await bench.census()
  })

  rule('D4', 'a parent that is unknown, or gone, is refused with DEPENDENCY_NOT_FOUND', async (bench) => {
    const gone = await bench.makeIn('success')
    await bench.operate('remove', gone)
    for (const on of ['success', 'final'] as const) {
      for (const parent of ['nobody', gone]) {
        const task = sketch({ id: 'child', after: { ids: [parent], on } })
        assert.deepEqual((await bench.enqueue([task])).map(codeOf), ['DEPENDENCY_NOT_FOUND'])
      }
    }
    assert.equal(await bench.stateOf('child'), 'unknown')
  })

  rule(
    'D5',
    'within a unit a parent stands before its children, so that no cycle can be written',
    async (bench) => {
      const [a, b] = [
        sketch({ id: 'a', after: { ids: ['b'], on: 'success' } }),
        sketch({ id: 'b', after: { ids: ['a'], on: 'success' } }),
      ]
      assert.deepEqual((await bench.enqueue([[a, b]])).map(codeOf), [
        'DEPENDENCY_NOT_FOUND',
        'DEPENDENCY_NOT_FOUND',
      ])
      const self = sketch({ id: 'c', after: { ids: ['c'], on: 'final' } })
      assert.deepEqual((await bench.enqueue([self])).map(codeOf), ['DEPENDENCY_NOT_FOUND'])
      assert.deepEqual(await bench.enqueue([[sketch('a'), b]]), ['accepted', 'accepted'])
      assert.deepEqual(await bench.states('a', 'b', 'c'), ['pending', 'blocked', 'unknown'])
    },
  )

  rule('D6', 'a parent may stand in an earlier unit of the call, unless that was refused', async (bench) => {
    const bad = [sketch('x'), sketch({ id: 'y', after: { ids: ['nobody'], on: 'final' } })]
    const outcomes = await bench.enqueue([
      sketch('a'),
      bad,
      sketch({ id: 'b', after: { ids: ['a'], on: 'final' } }),
      sketch({ id: 'c', after: { ids: ['x'], on: 'final' } }),
    ])
    assert.deepEqual(outcomes.map(codeOf).slice(3), ['accepted', 'DEPENDENCY_NOT_FOUND'])
  })

  rule('D7', 'a task may wait for 100 others, and not for one more', async (bench) => {
    const parents = ids('p', 101)
    await bench.add(...parents.map((id) => ({ id, priority: 0 })))
    const outcomes = await bench.enqueue([
      sketch({ id: 'child', after: { ids: parents.slice(1), on: 'success' } }),
      sketch({ id: 'many', after: { ids: parents, on: 'success' } }),
    ])
    assert.deepEqual(
      outcomes.map((outcome) => typeof outcome),
      ['string', 'object'],
    )
    const hand = await bench.hand()
    await hand.claim(101)
    for (const id of parents.slice(1)) {
      assert.equal(await bench.stateOf('child'), 'blocked')
      await hand.settle(id, 'success')
    }
    assert.equal((await hand.claim(1))[0]?.parents?.length, 100)
  })

  rule('D8', 'a parent that is named twice is waited for once', async (bench) => {
    await bench.add({ id: 'a', priority: 0 }, { id: 'child', after: { ids: ['a', 'a'], on: 'success' } })
    await end(bench, 'a', 'success')
    await bench.stands('child', 'pending')
  })

  rule('D9', 'the delay of a child starts at its release', async (bench) => {
    await bench.add(
      { id: 'a', priority: 0 },
      { id: 'child', delay: MINUTE, after: { ids: ['a'], on: 'success' } },
    )
    await bench.advance(2 * SECOND)
    await end(bench, 'a', 'success')
    const { state, dueAt, since } = await bench.get('child')
    assert.deepEqual([state, dueAt], ['scheduled', since + MINUTE])
    await bench.makeIn('success', { id: 'b' })
    await bench.add({ id: 'late', delay: MINUTE, after: { ids: ['b'], on: 'success' } })
    assert.equal(await bench.stateOf('late'), 'scheduled')
  })

  rule(
    'D10',
    'a child that was cancelled while blocked stays so, whatever its parent does',
    async (bench) => {
      await bench.add({ id: 'a', priority: 0 }, { id: 'b', priority: 1 })
      await bench.add({ id: 'child', after: { ids: ['a', 'b'], on: 'success' } })
      await bench.operate('cancel', 'child')
      await end(bench, 'a', 'success')
      await end(bench, 'b', 'failed')
      await bench.drain()
      await bench.stands('child', 'cancelled')
      assert.equal((await bench.get('child')).reason, 'TASK_CANCELLED')
    },
  )

  rule('D11', 'the edges of a removed child do not touch another task with its id', async (bench) => {
    const child = '0123456ab0001~'
    await bench.add({ id: 'a', priority: 0 }, { id: 'b', delay: DAY })
    await bench.add({ id: child, after: { ids: ['a'], on: 'success' } })
    await bench.operate('remove', child)
    await bench.add({ id: child, after: { ids: ['b'], on: 'success' } })
    await end(bench, 'a', 'success')
    await bench.drain()
    await bench.stands(child, 'blocked')
    assert.deepEqual((await bench.get(child)).waitsFor, ['b'])
  })

  rule('D12', 'a parent that lives again touches no child that it released', async (bench) => {
    await bench.add({ id: 'a', priority: 0 }, { id: 'child', after: { ids: ['a'], on: 'final' } })
    await end(bench, 'a', 'failed')
    await bench.operate('retry', 'a')
    await end(bench, 'a', 'failed')
    await bench.drain()
    await bench.stands('child', 'pending')
    const [child] = await (await bench.hand()).claim(1)
    assert.deepEqual(
      child?.parents?.map((parent) => ({ ...parent })),
      [{ id: 'a', state: 'failed' }],
    )
  })

  rule('D13', 'a child does not wait for a parent that is retried, only for its end', async (bench) => {
    await bench.add({ id: 'a', priority: 0 }, { id: 'child', after: { ids: ['a'], on: 'success' } })
    const hand = await bench.hand()
    await hand.claim(1)
    await hand.settle('a', 'retry', { in: 0 })
    await bench.stands('child', 'blocked')
    await bench.advance(5)
    await end(bench, 'a', 'success')
    await bench.stands('child', 'pending')
  })

  rule('D14', 'an expired or completed parent ends its children like any other', async (bench) => {
    await bench.add({ id: 'expires', hold: true, expiresIn: SECOND }, { id: 'held', hold: true })
    await bench.add(
      { id: 'a', after: { ids: ['expires'], on: 'success' } },
      { id: 'b', after: { ids: ['held'], on: 'success' } },
    )
    await bench.operate('complete', 'held')
    await bench.advance(2 * SECOND)
    await bench.drain()
    assert.deepEqual(await bench.states('a', 'b'), ['cancelled', 'pending'])
    assert.equal((await bench.get('a')).reason, 'DEPENDENCY_FAILED')
  })

  for (const on of ['success', 'final'] as const) {
    rule(
      `D-late-${on}`,
      `a child that waits for ${on} and expires together with its parent ends once`,
      async (bench) => {
        await bench.add({ id: 'parent', expiresIn: SECOND })
        await bench.add({ id: 'child', expiresIn: SECOND, after: { ids: ['parent'], on } })
        await bench.add({ id: 'next', after: { ids: ['child'], on: 'final' } })
        await bench.advance(2 * SECOND)
        await bench.drain()
        assert.deepEqual(await bench.states('parent', 'child', 'next'), ['cancelled', 'cancelled', 'pending'])
        await bench.census()
        const [minute] = (await bench.storage.queue.history(bench.ref, { from: 0, to: 1e15 })).slice(-1)
        assert.equal(minute?.cancelled, 2)
      },
    )
  }

  rule('D15', 'a held task waits for complete even when its parents are final', async (bench) => {
    await bench.add({ id: 'a', priority: 0 }, { id: 'held', hold: true, after: { ids: ['a'], on: 'final' } })
    await end(bench, 'a', 'success')
    await bench.stands('held', 'blocked')
    assert.equal(await bench.operate('complete', 'held'), 'done')
  })
}

function cascadeRules(rule: Rule): void {
  for (const [outcome, to] of [
    ['success', 'pending'],
    ['failed', 'cancelled'],
  ] as const) {
    rule(
      `D-cascade-${outcome}`,
      `of many dependents of a task that ends ${outcome}, at most 100 follow in one step`,
      async (bench) => {
        const children = await fan(bench, 250)
        await (await bench.hand()).settle('parent', outcome)
        const left = (await bench.storage.queue.counts(bench.ref)).blocked
        assert.ok(left >= 150, `${250 - left} in one step`)
        await bench.census()
        if (left > 0) {
          const pinned = await bench.operate('remove', 'parent')
          assert.equal(
            typeof pinned === 'object' && pinned.state,
            outcome,
            'a parent is not pinned by its open cascade',
          )
        }
        await bench.drain()
        for (const state of await bench.states(...children)) assert.equal(state, to)
        await bench.census()
      },
    )
  }

  rule('D16', 'claims alone, without upkeep, release all dependents', async (bench) => {
    const children = await fan(bench, 250)
    const hand = await bench.hand()
    await hand.settle('parent', 'success')
    assert.deepEqual(idsOf(await hand.claimAll()).sort(), children)
  })

  rule('D17', 'what happens to dependents during a cascade is respected by the rest of it', async (bench) => {
    const children = await fan(bench, 250)
    await (await bench.hand()).settle('parent', 'success')
    const blocked = idsOf(await bench.list({ state: 'blocked' }))
    const [cancelled, removed] = [blocked[0] ?? '', blocked[1] ?? '']
    await bench.operate('cancel', cancelled)
    await bench.operate('remove', removed)
    await bench.drain()
    for (const id of children) {
      const expected = id === cancelled ? 'cancelled' : id === removed ? 'unknown' : 'pending'
      assert.equal(await bench.stateOf(id), expected)
    }
    await bench.census()
  })

  rule('D18', 'a wide end that goes down several levels reaches all of them', async (bench) => {
    const children = await fan(bench, 150)
    await bench.enqueue([
      children.map((id) => sketch({ id: `${id}.next`, after: { ids: [id], on: 'success' } })),
      [sketch({ id: 'join', after: { ids: children.slice(0, 100).map((id) => `${id}.next`), on: 'final' } })],
    ])
    await (await bench.hand()).settle('parent', 'failed')
    await bench.drain()
    const counts = await bench.storage.queue.counts(bench.ref)
    assert.deepEqual([counts.failed, counts.cancelled, counts.pending, counts.blocked], [1, 300, 1, 0])
    await bench.stands('join', 'pending')
  })
}
