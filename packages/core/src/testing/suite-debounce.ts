/** B: debounce. Which tasks go into one that waits, what that one is afterwards, and when a key begins anew. */
import assert from 'node:assert/strict'
import type { EnqueueOutcome, NewTask } from '../storage.js'
import { TASK_STATES } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { codeOf, HOUR, idsOf, KIND, MINUTE, names, SECOND, sketch } from './sketch.js'

const KEY = 'doc-1'

type Part = Partial<NewTask> & { readonly key?: string; readonly maxWait?: number }

function debounced(id: string, { key = KEY, maxWait, ...rest }: Part = {}): NewTask {
  return sketch({ id, delay: MINUTE, debounce: { key, maxWait }, ...rest })
}

async function submit(bench: Bench, id: string, part: Part = {}): Promise<EnqueueOutcome | undefined> {
  return (await bench.enqueue([debounced(id, part)]))[0]
}

/** When the task is due, in ms from its making. */
async function dueAfter(bench: Bench, id: string): Promise<number> {
  const { dueAt, createdAt } = await bench.get(id)
  return (dueAt ?? 0) - createdAt
}

export function debounceRules(rule: Rule): void {
  rule('B1', 'the first task with a key is stored, and waits for its delay', async (bench) => {
    assert.equal(await submit(bench, 'a'), 'accepted')
    await bench.stands('a', 'scheduled')
    assert.equal(await dueAfter(bench, 'a'), MINUTE)
  })

  rule(
    'B2',
    'the next goes into it: payload, codec, options and delay are those of the last',
    async (bench) => {
      await bench.add({ id: 'other', delay: HOUR })
      await submit(bench, 'a', { options: 'old' })
      await bench.advance(SECOND)
      const outcome = await submit(bench, 'b', {
        payload: 'new',
        codec: 'text',
        options: 'new',
        delay: 2 * HOUR,
      })
      assert.deepEqual(outcome, { into: 'a' })
      assert.equal(await bench.stateOf('b'), 'unknown')
      const { payload, codec, options } = await bench.get('a')
      assert.deepEqual({ payload, codec, options }, { payload: 'new', codec: 'text', options: 'new' })
      assert.ok((await dueAfter(bench, 'a')) >= SECOND + 2 * HOUR)
      assert.deepEqual(idsOf(await bench.list({ state: 'scheduled' })), ['other', 'a'])
      await bench.stands('a', 'scheduled')
    },
  )

  rule(
    'B3',
    'of many that follow each other closely one runs, once, with the last payload',
    async (bench) => {
      const hand = await bench.hand()
      for (let turn = 0; turn < 5; turn++) {
        await submit(bench, `task-${turn}`, { payload: `turn ${turn}`, delay: SECOND })
        await bench.advance(400)
        assert.deepEqual(await hand.claim(5), [])
      }
      await bench.advance(SECOND)
      const claimed = await hand.claim(5)
      assert.deepEqual(
        claimed.map(({ id, payload }) => ({ id, payload })),
        [{ id: 'task-0', payload: 'turn 4' }],
      )
    },
  )

  rule('B4', 'a task that is ready and not claimed takes it up too, and waits again', async (bench) => {
    await submit(bench, 'a', { delay: SECOND })
    await bench.advance(2 * SECOND)
    await bench.drain()
    await bench.stands('a', 'pending')
    assert.deepEqual(await submit(bench, 'b', { payload: 'new', delay: SECOND }), { into: 'a' })
    await bench.stands('a', 'scheduled')
    assert.deepEqual(await (await bench.hand()).claim(1), [])
    await bench.advance(SECOND)
    assert.equal((await (await bench.hand()).claim(1))[0]?.payload, 'new')
  })

  rule('B5', 'without a delay a ready task keeps its place when it takes up another', async (bench) => {
    await submit(bench, 'a', { delay: 0 })
    await bench.add('other')
    assert.deepEqual(await submit(bench, 'b', { payload: 'new', delay: 0 }), { into: 'a' })
    await bench.stands('a', 'pending')
    const claimed = await (await bench.hand()).claim(2)
    assert.deepEqual(
      claimed.map(({ payload }) => payload),
      ['new', 'payload of other'],
    )
  })

  rule('B24', 'a ready task that keeps its place has been ready since then', async (bench) => {
    await submit(bench, 'a', { delay: 0 })
    const { since } = await bench.get('a')
    await bench.advance(SECOND)
    await submit(bench, 'b', { payload: 'new', delay: 0 })
    const { payload, since: still } = await bench.get('a')
    assert.deepEqual([payload, still], ['new', since])
  })

  rule('B6', 'so does one that stands aside, for who serves its kind', async (bench) => {
    await submit(bench, 'a', { delay: 0 })
    await (await bench.node({ kinds: ['other'] })).claim(1)
    assert.deepEqual(await submit(bench, 'b', { payload: 'new', delay: 0 }), { into: 'a' })
    await bench.stands('a', 'pending')
    assert.equal((await (await bench.hand()).claim(1))[0]?.payload, 'new')
  })

  rule('B7', 'the priority is that of the last', async (bench) => {
    await submit(bench, 'a', { priority: 5 })
    await submit(bench, 'b', { priority: 1 })
    assert.equal((await bench.get('a')).priority, 1)
    await bench.add('other')
    await bench.advance(MINUTE)
    assert.deepEqual(idsOf(await (await bench.hand()).claim(2)), ['a', 'other'])
  })

  for (const state of TASK_STATES) {
    if (state === 'pending' || state === 'scheduled') continue
    rule(
      `B-after-${state}`,
      `when the task of the key is ${state}, the next is a task of its own`,
      async (bench) => {
        const first = await bench.makeIn(state, {
          debounce: { key: KEY },
          delay: 0,
          hold: state === 'blocked',
        })
        const before = await bench.get(first)
        assert.equal(await submit(bench, 'next'), 'accepted')
        assert.deepEqual(await bench.get(first), before)
        await bench.stands('next', 'scheduled')
        assert.deepEqual(await submit(bench, 'third'), { into: 'next' })
      },
    )
  }

  rule('B8', 'a task that waits for its retry takes it up and begins anew', async (bench) => {
    const hand = await bench.hand()
    await submit(bench, 'a', { delay: 0, priority: 0 })
    await hand.claim(1)
    const mark = hand.mark('a')
    await hand.work({ marks: [mark], reports: [{ ...mark, checkpoint: 'half of the old', progress: '1' }] })
    await hand.settle('a', 'retry')
    assert.equal((await bench.get('a')).attempts, 1)
    assert.deepEqual(await submit(bench, 'b', { payload: 'new', delay: SECOND }), { into: 'a' })
    const { attempts, error, checkpoint, progress } = await bench.get('a')
    assert.deepEqual([attempts, error, checkpoint, progress], [0, undefined, undefined, undefined])
    await bench.advance(SECOND)
    const [claimed] = await hand.claim(1)
    assert.deepEqual([claimed?.payload, claimed?.attempts, claimed?.checkpoint], ['new', 0, undefined])
    await hand.settle('a', 'success')
    await bench.stands('a', 'success')
  })

  rule(
    'B9',
    'what was given back and took up another cannot be settled by the earlier claim',
    async (bench) => {
      const first = await bench.node()
      await submit(bench, 'a', { delay: 0 })
      await first.claim(1)
      const mark = first.mark('a')
      await first.settle('a', 'released')
      assert.deepEqual(await submit(bench, 'b', { payload: 'new', delay: 0 }), { into: 'a' })
      const success = { ...mark, outcome: 'success', result: '1', codec: 'json' } as const
      await first.work({ settlements: [success] })
      await bench.stands('a', 'pending')
      assert.equal((await bench.get('a')).payload, 'new')
    },
  )

  rule('B10', 'maxWait bounds how long a task is put off, from the first of its window', async (bench) => {
    for (let turn = 0; turn < 4; turn++) {
      await submit(bench, `task-${turn}`, { delay: 10 * SECOND, maxWait: 25 * SECOND })
      await bench.advance(8 * SECOND)
    }
    // 24 s after the first: one more second, although the last asked for ten.
    assert.equal(await dueAfter(bench, 'task-0'), 25 * SECOND)
    assert.equal(
      await submit(bench, 'late', { delay: 10 * SECOND, maxWait: 25 * SECOND, key: 'other' }),
      'accepted',
    )
    await bench.drain()
    await bench.stands('task-0', 'pending')
    assert.deepEqual(await submit(bench, 'task-4', { delay: 10 * SECOND, maxWait: 25 * SECOND }), {
      into: 'task-0',
    })
    await bench.stands('task-0', 'pending')
  })

  rule('B11', 'after an attempt maxWait counts anew', async (bench) => {
    const hand = await bench.hand()
    await submit(bench, 'a', { delay: 0, priority: 0 })
    await hand.claim(1)
    await hand.settle('a', 'retry')
    await bench.advance(MINUTE)
    await submit(bench, 'b', { delay: 10 * SECOND, maxWait: 30 * SECOND })
    await bench.advance(5 * SECOND)
    await submit(bench, 'c', { delay: 30 * SECOND, maxWait: 30 * SECOND })
    const due = await dueAfter(bench, 'a')
    assert.ok(due >= MINUTE + 30 * SECOND && due < MINUTE + 35 * SECOND, `due after ${due} ms`)
  })

  rule('B23', 'after a retry of the ended task maxWait counts anew', async (bench) => {
    const part = { delay: 10 * SECOND, maxWait: 30 * SECOND }
    await submit(bench, 'a', part)
    await bench.operate('cancel', 'a')
    await bench.advance(MINUTE)
    assert.equal(await bench.operate('retry', 'a'), 'done')
    assert.deepEqual(await submit(bench, 'b', part), { into: 'a' })
    await bench.stands('a', 'scheduled')
    const due = await dueAfter(bench, 'a')
    assert.ok(due >= MINUTE + 10 * SECOND && due < MINUTE + 15 * SECOND, `due after ${due} ms`)
  })

  rule('B12', 'keys of other kinds, queues and tenants are other keys', async (bench) => {
    await submit(bench, 'a')
    assert.equal(await submit(bench, 'b', { kind: 'other' }), 'accepted')
    assert.equal(await submit(bench, 'c', { key: 'doc-2' }), 'accepted')
    assert.equal(await submit(bench.at({ ...bench.ref, queue: 'elsewhere' }), 'd'), 'accepted')
    assert.equal(await submit(bench.at({ ...bench.ref, tenant: 'other' }), 'e'), 'accepted')
    assert.deepEqual(await submit(bench, 'f'), { into: 'a' })
    assert.deepEqual(await submit(bench, 'g', { kind: 'other' }), { into: 'b' })
  })

  rule('B13', 'a full queue takes what goes into a task that waits', async (bench) => {
    const tasks = [
      debounced('a'),
      [debounced('b'), debounced('c')],
      debounced('d', { key: 'doc-2' }),
      sketch('e'),
    ]
    const outcomes = await bench.enqueue(tasks, { maxQueueSize: 1 })
    assert.deepEqual(outcomes.map(codeOf), ['accepted', 'into a', 'into a', 'QUEUE_FULL', 'QUEUE_FULL'])
    const unit = [debounced('f', { key: 'doc-3' }), debounced('g', { key: 'doc-3', payload: 'last' })]
    assert.deepEqual((await bench.enqueue([unit], { maxQueueSize: 2 })).map(codeOf), ['accepted', 'into f'])
    assert.equal((await bench.get('f')).payload, 'last')
  })

  rule('B22', 'what goes into another task is no parent, for its own id is unknown', async (bench) => {
    const child = (id: string, parent: string): NewTask =>
      sketch({ id, after: { ids: [parent], on: 'final' } })
    await submit(bench, 'a')
    const outcomes = await bench.enqueue([
      [debounced('b'), child('c', 'b')],
      [debounced('d', { key: 'doc-2' }), debounced('e', { key: 'doc-2' }), child('f', 'e')],
      [debounced('g', { key: 'doc-3' }), child('h', 'g')],
    ])
    const refused = 'DEPENDENCY_NOT_FOUND'
    const expected = [refused, refused, refused, refused, refused, 'accepted', 'accepted']
    assert.deepEqual(outcomes.map(codeOf), expected)
    assert.deepEqual([...(await bench.census()).keys()].sort(), ['a', 'g', 'h'])
  })

  rule(
    'B25',
    'a duplicate opens no window, and what comes after it in its unit is a parent',
    async (bench) => {
      await bench.add('known')
      const child = sketch({ id: 'child', after: { ids: ['new'], on: 'final' } })
      const outcomes = await bench.enqueue([
        [debounced('known', { nonce: 'other' }), debounced('new'), child],
      ])
      assert.deepEqual(outcomes.map(codeOf), ['duplicate', 'accepted', 'accepted'])
      await bench.stands('child', 'blocked')
    },
  )

  for (const state of TASK_STATES) {
    if (state === 'blocked' || state === 'skipped') continue
    rule(
      `B-repeat-${state}`,
      `the repeat of one that went into a task which is ${state} now is told the same, and changes nothing`,
      async (bench) => {
        const delay = state === 'scheduled' ? HOUR : 0
        await submit(bench, 'a', { delay, priority: 0 })
        const again = (): Promise<EnqueueOutcome | undefined> =>
          submit(bench, 'b', { payload: 'new', delay, priority: 0 })
        assert.deepEqual(await again(), { into: 'a' })
        if (state === 'cancelled') await bench.operate('cancel', 'a')
        else if (state !== 'pending' && state !== 'scheduled') {
          const hand = await bench.hand()
          await hand.claim(1)
          if (state !== 'running') await hand.settle('a', state)
        }
        const before = await bench.get('a')
        assert.deepEqual(await again(), { into: 'a' })
        assert.deepEqual(await bench.get('a'), before)
        await bench.stands('a', state)
        assert.equal((await bench.census()).size, 1)
      },
    )
  }

  rule('B14', 'the repeat of the first is told that it was stored', async (bench) => {
    await submit(bench, 'a', { nonce: 'n' })
    await submit(bench, 'b', { payload: 'new' })
    assert.equal(await submit(bench, 'a', { nonce: 'n' }), 'repeated')
    assert.equal((await bench.get('a')).payload, 'new')
  })

  rule('B15', 'two processes at once make one task, with the payload of one of them', async (bench) => {
    const peer = await bench.peer()
    const payloads = ['here', 'there']
    const outcomes = await Promise.all(
      [bench.storage, peer].map((storage, index) =>
        storage.queue.enqueue(bench.ref, [debounced(`t${index}`, { payload: payloads[index] ?? '' })]),
      ),
    )
    const first = outcomes.flat().indexOf('accepted')
    assert.deepEqual(outcomes.flat()[1 - first], { into: `t${first}` })
    assert.equal((await bench.get(`t${first}`)).payload, payloads[1 - first])
    assert.equal((await bench.census()).size, 1)
  })

  rule(
    'B16',
    'a submission at the same time as the claim is in that attempt, or in a task of its own',
    async (bench) => {
      const node = (await bench.node()).through(await bench.peer())
      for (let turn = 0; turn < 20; turn++) {
        const [a, b] = [`a${turn}`, `b${turn}`]
        await submit(bench, a, { delay: 0 })
        const [outcome, claimed] = await Promise.all([
          submit(bench, b, { payload: b, delay: 0 }),
          node.claim(1),
        ])
        const [task] = claimed
        if (task?.payload !== b) {
          assert.equal(outcome, 'accepted')
          const [next] = await node.claim(1)
          assert.deepEqual([next?.id, next?.payload], [b, b])
          await node.settle(b, 'success')
        }
        await node.settle(a, 'success')
      }
    },
  )

  rule('B17', 'the removal of its task frees the key', async (bench) => {
    await submit(bench, 'a')
    await submit(bench, 'b')
    await bench.operate('remove', 'a')
    assert.equal(await submit(bench, 'b'), 'accepted')
    assert.deepEqual(await submit(bench, 'c'), { into: 'b' })
  })

  rule('B18', 'the removal of an older task leaves the key to the newest', async (bench) => {
    const hand = await bench.hand()
    await submit(bench, 'a', { delay: 0, priority: 0 })
    await hand.claim(1)
    await submit(bench, 'b')
    await hand.settle('a', 'success')
    await bench.operate('remove', 'a')
    assert.deepEqual(await submit(bench, 'c'), { into: 'b' })
  })

  rule('B19', 'who registers with it hears of the end of the task that took it up', async (bench) => {
    await submit(bench, 'a', { delay: 0, priority: 0 })
    const heard = await bench.hearFinal('me')
    assert.deepEqual(await submit(bench, 'b', { delay: 0, priority: 0, watcher: 'me' }), { into: 'a' })
    const hand = await bench.hand()
    await hand.claim(1)
    await hand.settle('a', 'success')
    await bench.until(() => names(heard, 'a'), 'it hears nothing')
  })

  rule('B20', 'a key or a time that cannot be stored is refused, and harms no neighbour', async (bench) => {
    const bad = [
      debounced('a', { key: '' }),
      debounced('b', { key: 'a b' }),
      debounced('c', { maxWait: NaN }),
    ]
    const outcomes = await bench.enqueue([...bad, debounced('d')])
    assert.deepEqual(outcomes.map(codeOf), ['OPTION_INVALID', 'OPTION_INVALID', 'OPTION_INVALID', 'accepted'])
    assert.equal((await bench.census()).size, 1)
  })

  rule('B21', 'an ordinary task is none of its business', async (bench) => {
    await submit(bench, KEY, { kind: KIND })
    assert.deepEqual(await bench.enqueue([sketch({ id: KEY, nonce: 'other' })]), ['duplicate'])
    await bench.add('plain')
    assert.deepEqual(await bench.states(KEY, 'plain'), ['scheduled', 'pending'])
  })
}
