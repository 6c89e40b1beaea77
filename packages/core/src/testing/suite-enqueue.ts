/** E: enqueue. What is accepted, what is refused, and what a repeat is told. */
import assert from 'node:assert/strict'
import type { Encoded, NewTask, Unit } from '../storage.js'
import { TASK_STATES, TaskIds } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { codeOf, HOUR, ids, idsOf, MINUTE, SECOND, sketch } from './sketch.js'

const MIB = 1024 * 1024
const EVERY_CHARACTER = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@/+=-~#'

/** Payloads that a careless driver changes or takes for nothing. */
export const PAYLOADS: readonly Encoded[] = [
  '',
  'false',
  '0',
  'null',
  '[]',
  ' {"a" : 1}\n',
  'héllo 任务 🚀',
  'nul\u0000inside',
  new Uint8Array(),
  Uint8Array.from({ length: 256 }, (_, byte) => byte),
]

/** Nothing of what was refused may be there. */
async function absent(bench: Bench, ...unknown: string[]): Promise<void> {
  for (const state of await bench.states(...unknown)) assert.equal(state, 'unknown')
}

export function enqueueRules(rule: Rule): void {
  rule('E1', 'there is one outcome for each task, in order, with the units flattened', async (bench) => {
    await bench.add('known')
    const units = [sketch('a'), [sketch('b'), sketch('c')], sketch('known'), [sketch('d')]]
    const outcomes = await bench.enqueue(units)
    assert.deepEqual(outcomes, ['accepted', 'accepted', 'accepted', 'duplicate', 'accepted'])
    assert.deepEqual(await bench.enqueue([]), [])
  })

  rule('E2', 'a unit is refused whole, and its neighbours are accepted', async (bench) => {
    const bad = sketch({ id: 'bad', after: { ids: ['nobody'], on: 'final' } })
    const outcomes = await bench.enqueue([
      sketch('a'),
      [sketch('b'), bad, sketch('c')],
      [sketch('d'), sketch('e')],
    ])
    assert.deepEqual(outcomes.map(codeOf), [
      'accepted',
      'DEPENDENCY_NOT_FOUND',
      'DEPENDENCY_NOT_FOUND',
      'DEPENDENCY_NOT_FOUND',
      'accepted',
      'accepted',
    ])
    assert.deepEqual([...(await bench.census()).keys()].sort(), ['a', 'd', 'e'])
    assert.deepEqual(await bench.enqueue([sketch('b'), sketch('c')]), ['accepted', 'accepted'])
  })

  rule('E3', 'tasks keep the order of their units, and within a unit their own', async (bench) => {
    const units = [[sketch('a'), sketch('b')], sketch('c'), [sketch('d'), sketch('e')]]
    await bench.enqueue(units)
    assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), ['a', 'b', 'c', 'd', 'e'])
  })

  for (const state of TASK_STATES) {
    rule(
      `E-duplicate-${state}`,
      `an id that is known and ${state} is a duplicate and changes nothing`,
      async (bench) => {
        const id = await bench.makeIn(state)
        const before = await bench.get(id)
        const outcomes = await bench.enqueue([
          sketch({ id, payload: 'other', priority: 9, delay: MINUTE, nonce: 'n2' }),
        ])
        assert.deepEqual(outcomes, ['duplicate'])
        assert.deepEqual(await bench.get(id), before)
        await bench.stands(id, state)
      },
    )
    rule(
      `E-repeat-${state}`,
      `a task with the nonce of one that is ${state} is its repeat`,
      async (bench) => {
        const id = await bench.makeIn(state, { nonce: 'n1' })
        const before = await bench.get(id)
        assert.deepEqual(await bench.enqueue([sketch({ id, nonce: 'n1' })]), ['repeated'])
        assert.deepEqual(await bench.get(id), before)
        await bench.stands(id, state)
      },
    )
  }

  rule('E4', 'a generated id that is known is a repeat, with or without a nonce', async (bench) => {
    const id = new TaskIds(0).next(1_700_000_000_000)
    await bench.add(id)
    assert.deepEqual(await bench.enqueue([sketch(id)]), ['repeated'])
    assert.deepEqual(await bench.enqueue([sketch({ id, nonce: 'n' })]), ['repeated'])
    assert.equal((await bench.census()).size, 1)
  })

  rule('E5', 'a whole batch may be repeated when its reply was lost', async (bench) => {
    const parent = sketch({ id: 'parent', nonce: 'n' })
    const child = sketch({ id: 'child', nonce: 'n', after: { ids: ['parent'], on: 'success' } })
    const units = [[parent, child], sketch({ id: 'single', nonce: 'n', delay: HOUR })]
    assert.deepEqual(await bench.enqueue(units), ['accepted', 'accepted', 'accepted'])
    assert.deepEqual(await bench.enqueue(units), ['repeated', 'repeated', 'repeated'])
    assert.deepEqual([...(await bench.census()).values()].sort(), ['blocked', 'pending', 'scheduled'])
  })

  rule('E6', 'an id that a call names twice is accepted once', async (bench) => {
    const outcomes = await bench.enqueue([
      sketch('a'),
      sketch({ id: 'a', payload: 'other' }),
      [sketch('b'), sketch('b')],
    ])
    assert.deepEqual(outcomes, ['accepted', 'duplicate', 'accepted', 'duplicate'])
    assert.equal((await bench.get('a')).payload, 'payload of a')
    assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), ['a', 'b'])
  })

  rule('E22', 'each task that a unit names by one id is met by its own nonce', async (bench) => {
    const [first, second] = [sketch({ id: 'task', nonce: 'n' }), sketch({ id: 'task', nonce: 'other' })]
    assert.deepEqual(await bench.enqueue([[first, second, first]]), ['accepted', 'duplicate', 'repeated'])
    assert.deepEqual(await bench.enqueue([[first, second, first]]), ['repeated', 'duplicate', 'repeated'])
  })

  rule('E23', 'what a unit names for the second time does not refuse it', async (bench) => {
    const again = sketch({ id: 'task', after: { ids: ['nobody'], on: 'final' } })
    assert.deepEqual(await bench.enqueue([[sketch('task'), again]]), ['accepted', 'duplicate'])
  })

  rule('E7', 'a known id refuses no unit: what is new in it is accepted', async (bench) => {
    await bench.add('known')
    const child = sketch({ id: 'child', after: { ids: ['known'], on: 'success' } })
    assert.deepEqual(await bench.enqueue([[sketch('known'), child]]), ['duplicate', 'accepted'])
    await bench.stands('child', 'blocked')
  })

  rule('E8', 'maxQueueSize refuses, unit by unit, what would make more tasks wait', async (bench) => {
    await bench.makeIn('scheduled')
    await bench.makeIn('blocked', { hold: true })
    await bench.makeIn('running')
    await bench.makeIn('success')
    const units = [[sketch('a'), sketch('b')], [sketch('c'), sketch('d')], sketch('e'), sketch('f')]
    const outcomes = await bench.enqueue(units, { maxQueueSize: 5 })
    assert.deepEqual(outcomes.map(codeOf), [
      'accepted',
      'accepted',
      'QUEUE_FULL',
      'QUEUE_FULL',
      'accepted',
      'QUEUE_FULL',
    ])
    await absent(bench, 'c', 'd', 'f')
  })

  rule('E9', 'a repeat is told so by a full queue too', async (bench) => {
    await bench.enqueue([sketch({ id: 'a', nonce: 'n' }), sketch('b')], { maxQueueSize: 2 })
    const again = await bench.enqueue([sketch({ id: 'a', nonce: 'n' }), sketch('b')], { maxQueueSize: 2 })
    assert.deepEqual(again, ['repeated', 'duplicate'])
  })

  rule('E24', 'a unit that brings nothing new is told so by a queue beyond its limit', async (bench) => {
    const unit = [sketch({ id: 'a', nonce: 'n' }), sketch({ id: 'b', nonce: 'n' })]
    await bench.enqueue([unit])
    assert.deepEqual(await bench.enqueue([unit], { maxQueueSize: 1 }), ['repeated', 'repeated'])
  })

  rule('E10', 'a unit may have 500 tasks, and not one more', async (bench) => {
    const most = ids('a', 500).map(sketch)
    assert.ok((await bench.enqueue([most])).every((outcome) => outcome === 'accepted'))
    const outcomes = await bench.enqueue([ids('b', 501).map(sketch), sketch('c')])
    assert.equal(outcomes.length, 502)
    assert.ok(outcomes.slice(0, 501).every((outcome) => typeof outcome === 'object'))
    assert.equal(outcomes[501], 'accepted')
    await absent(bench, 'b0000', 'b0500')
  })

  rule(
    'E11',
    'a unit of several tasks may have 1 MiB of payload; one task alone may have more',
    async (bench) => {
      const half = (id: string, more: number) => sketch({ id, payload: new Uint8Array(MIB / 2 + more) })
      const outcomes = await bench.enqueue([
        [half('a', 0), half('b', 0)],
        [half('c', 1), half('d', 0)],
        sketch({ id: 'large', payload: 'x'.repeat(2 * MIB) }),
      ])
      assert.deepEqual(
        outcomes.map((outcome) => typeof outcome === 'object'),
        [false, false, true, true, false],
      )
      await absent(bench, 'c', 'd')
      assert.equal((await bench.get('large')).payload.length, 2 * MIB)
    },
  )

  rule('E12', 'every permitted character may stand in an id, up to 256 of them', async (bench) => {
    const all = EVERY_CHARACTER.split('')
    const names = [
      ...all,
      EVERY_CHARACTER,
      'x'.repeat(256),
      'run~node#2',
      'constructor',
      '__proto__',
      'toString',
    ]
    await bench.add(...names)
    assert.deepEqual(
      await bench.states(...names),
      names.map(() => 'pending'),
    )
    const hand = await bench.hand()
    assert.deepEqual(idsOf(await hand.claimAll()), names)
    for (const id of names) await hand.settle(id, 'success')
    assert.deepEqual(
      await bench.states(...names),
      names.map(() => 'success'),
    )
  })

  rule('E13', 'any other id is refused, and harms no neighbour', async (bench) => {
    const bad = ['', ' ', 'a b', 'a\n', 'ü', 'a,b', 'a*', "a'", '"', '%', '\\', 'x'.repeat(257)]
    const outcomes = await bench.enqueue([...bad.map(sketch), sketch('good')])
    assert.deepEqual(
      outcomes.map((outcome) => typeof outcome),
      [...bad.map(() => 'object'), 'string'],
    )
    assert.deepEqual([...(await bench.census()).keys()], ['good'])
  })

  rule('E14', 'a priority that is no integer from 0 to 1 000 is refused', async (bench) => {
    const outcomes = await bench.enqueue(
      [-1, 1001, 0.5, NaN, 0, 1000].map((priority, index) => sketch({ id: `t${index}`, priority })),
    )
    assert.deepEqual(
      outcomes.map((outcome) => typeof outcome === 'object'),
      [true, true, true, true, false, false],
    )
  })

  rule(
    'E15',
    'a delay counts from the enqueue, and none, or an instant that has passed, means now',
    async (bench) => {
      const now = await bench.time()
      await bench.add({ id: 'delay', delay: MINUTE }, { id: 'none', delay: 0 })
      await bench.add({ id: 'past', runAt: now - MINUTE }, { id: 'future', runAt: now + HOUR })
      const delayed = await bench.get('delay')
      assert.equal(delayed.dueAt, delayed.createdAt + MINUTE)
      assert.equal((await bench.get('future')).dueAt, now + HOUR)
      assert.deepEqual(await bench.states('delay', 'none', 'past', 'future'), [
        'scheduled',
        'pending',
        'pending',
        'scheduled',
      ])
    },
  )

  rule('E26', 'a runAt is an instant of a Date, other times are at most 100 000 years', async (bench) => {
    const [last, longest] = [8.64e15, 36_525_000 * 86_400_000]
    const good = [{ runAt: 0 }, { runAt: last }, { delay: longest }, { expiresIn: longest }]
    const wrong = [NaN, Infinity, -1]
    const bad = [
      ...[...wrong, last + 1].map((runAt) => ({ runAt })),
      ...[...wrong, longest + 1].flatMap((ms) => [{ delay: ms }, { expiresIn: ms }]),
    ]
    const outcomes = await bench.enqueue(
      [...good, ...bad].map((times, n) => sketch({ id: `t${n}`, ...times })),
    )
    assert.deepEqual(
      outcomes.map((outcome) => typeof outcome),
      [...good.map(() => 'string'), ...bad.map(() => 'object')],
    )
    assert.deepEqual(await bench.states('t0', 't1', 't2', 't3'), [
      'pending',
      'scheduled',
      'scheduled',
      'pending',
    ])
    assert.equal((await bench.get('t1')).dueAt, last)
    const { createdAt, dueAt } = await bench.get('t2')
    assert.equal(dueAt, createdAt + longest)
  })

  rule('E19', 'payloads come back as they were, text as text and bytes as bytes', async (bench) => {
    const names = ids('t', PAYLOADS.length)
    await bench.add(...names.map((id, index) => ({ id, payload: PAYLOADS[index] ?? '' })))
    const check = (found: Encoded | undefined, index: number): void => {
      const given = PAYLOADS[index]
      assert.equal(typeof found, typeof given)
      if (typeof given === 'string') assert.equal(found, given)
      else assert.deepEqual([...((found ?? []) as Uint8Array)], [...(given ?? [])])
    }
    for (const [index, id] of names.entries()) check((await bench.get(id)).payload, index)
    for (const [index, task] of (await (await bench.hand()).claim(99)).entries()) check(task.payload, index)
    for (const [index, task] of (await bench.list({ state: 'running' }))
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .entries()) {
      check(task.payload, index)
    }
  })

  rule('E20', 'a batch as large as the limits say is taken in one call', async (bench) => {
    const { enqueue, work } = bench.storage.limits
    assert.ok(Number.isInteger(enqueue) && enqueue > 0 && Number.isInteger(work) && work > 0)
    const names = ids('t', enqueue)
    assert.ok((await bench.enqueue(names.map(sketch))).every((outcome) => outcome === 'accepted'))
    assert.equal((await bench.storage.queue.counts(bench.ref)).pending, enqueue)
  })

  rule('E21', 'two calls at once that name the same id store it once', async (bench) => {
    const peer = await bench.peer()
    const outcomes = await Promise.all(
      [bench.storage, peer, bench.storage, peer].map((storage, index) =>
        storage.queue.enqueue(bench.ref, [sketch({ id: 'same', payload: `${index}` })]),
      ),
    )
    assert.deepEqual(outcomes.flat().sort(), ['accepted', 'duplicate', 'duplicate', 'duplicate'])
    const winner = outcomes.findIndex(([outcome]) => outcome === 'accepted')
    assert.equal((await bench.get('same')).payload, `${winner}`)
  })

  rule('E25', 'a task with a guard is stored only while the claim of that record holds', async (bench) => {
    const { records } = bench.storage
    const claim = async (): Promise<number> => {
      const reply = await records.claimDue(bench.ref.tenant, { prefix: 'g/', limit: 9, leaseMs: SECOND })
      return reply.records[0]?.version ?? -1
    }
    await records.put(bench.ref.tenant, 'g/a', 'value', { dueIn: 0 })
    const first = await claim()
    const guarded = (id: string, version: number): NewTask => sketch({ id, guard: { key: 'g/a', version } })
    const refused = async (...units: Unit[]): Promise<void> => {
      for (const outcome of await bench.enqueue(units)) assert.equal(codeOf(outcome), 'LEASE_LOST')
    }
    assert.deepEqual(await bench.enqueue([guarded('a', first), sketch('b')]), ['accepted', 'accepted'])
    await bench.advance(SECOND)
    const second = await claim()
    await refused(guarded('c', first), [sketch('d'), guarded('e', first)])
    await refused({ ...guarded('f', first), delay: SECOND })
    const mixed = await bench.enqueue([guarded('c', first), sketch('g'), guarded('h', second)])
    assert.deepEqual([codeOf(mixed[0]), ...mixed.slice(1)], ['LEASE_LOST', 'accepted', 'accepted'])
    // What is stored is stored, whoever repeats it.
    assert.deepEqual(await bench.enqueue([{ ...guarded('a', first), nonce: 'n' }]), ['duplicate'])
    await records.delete(bench.ref.tenant, 'g/a')
    await refused(guarded('i', second))
    assert.equal((await bench.storage.queue.counts(bench.ref)).pending, 4)
  })
}
