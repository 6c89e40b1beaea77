/** T: waiting for the end of a task: registrations, what is final already, and what is published. */
import assert from 'node:assert/strict'
import { finalChannel, idsIn } from '../storage.js'
import type { WatchOutcome } from '../storage.js'
import type { Bench, Rule } from './harness.js'
import { DAY, ending, ids, KEEP, MINUTE, names, SECOND, SHORT_TTL, sketch } from './sketch.js'

const watch = (bench: Bench, id: string, watcher = 'me', ttl = MINUTE): Promise<WatchOutcome[]> =>
  bench.storage.queue.watch(bench.ref, [id], { watcher, ttl })

const NOTHING_KEPT = { success: { age: 0, count: 0 }, failed: { age: 0, count: 0 } }

/** Each way to an end, and to a removal, of a task with this id. */
const ENDS: Readonly<Record<string, { how: string; end: (bench: Bench, id: string) => Promise<unknown> }>> = {
  success: { how: 'succeeds', end: async (bench, id) => settle(bench, id, 'success') },
  failed: { how: 'fails', end: async (bench, id) => settle(bench, id, 'failed') },
  cancelled: { how: 'settles as cancelled', end: async (bench, id) => settle(bench, id, 'cancelled') },
  skipped: { how: 'is skipped', end: async (bench, id) => settle(bench, id, 'skipped') },
  cancel: { how: 'is cancelled', end: async (bench, id) => bench.operate('cancel', id) },
  remove: { how: 'is removed', end: async (bench, id) => bench.operate('remove', id) },
  poison: {
    how: 'is poison',
    end: async (bench, id) => {
      const node = await bench.node({ ttl: SHORT_TTL, maxReclaims: 0 })
      await node.claim(1)
      await node.start(id)
      await bench.lose(node)
    },
  },
}

async function settle(
  bench: Bench,
  id: string,
  outcome: 'success' | 'failed' | 'cancelled' | 'skipped',
): Promise<void> {
  const hand = await bench.hand()
  await hand.claim(1)
  await hand.settle(id, outcome)
}

export function waitingRules(rule: Rule): void {
  for (const [name, { how, end }] of Object.entries(ENDS)) {
    rule(`T-${name}`, `who watches a task is told when it ${how}`, async (bench) => {
      const heard = await bench.hearFinal('me', await bench.peer())
      await bench.add('task')
      assert.deepEqual(await watch(bench, 'task', 'me', DAY), ['open'])
      await end(bench, 'task')
      await bench.until(() => names(heard, 'task'), 'nothing was published')
    })
  }

  for (const [name, task, how, end] of [
    ['expire', { expiresIn: SECOND }, 'expires', (bench: Bench) => bench.advance(2 * SECOND)],
    ['complete', { hold: true }, 'is completed', (bench: Bench) => bench.operate('complete', 'task')],
    [
      'dependency',
      { after: { ids: ['parent'], on: 'success' } },
      'ends with its parent',
      (bench: Bench) => bench.operate('cancel', 'parent'),
    ],
  ] as const) {
    rule(`T-${name}`, `who watches a task is told when it ${how}`, async (bench) => {
      const heard = await bench.hearFinal('me')
      await bench.add('parent', { id: 'task', ...task })
      assert.deepEqual(await watch(bench, 'task', 'me', DAY), ['open'])
      await end(bench)
      await bench.drain()
      await bench.until(() => names(heard, 'task'), 'nothing was published')
    })
  }

  rule('T1', 'watch answers at once, with the record, for what is final already', async (bench) => {
    const id = await bench.makeIn('running')
    const hand = await bench.hand()
    await hand.settle(id, 'failed', { error: '{"message":"no"}', duration: 9 })
    const [outcome] = await watch(bench, id)
    assert.ok(typeof outcome === 'object')
    const { state, error, attempts, duration, result, reason } = outcome
    assert.deepEqual(
      { id: outcome.id, state, error, attempts, duration, result, reason },
      {
        id,
        state: 'failed',
        error: '{"message":"no"}',
        attempts: 1,
        duration: 9,
        result: undefined,
        reason: undefined,
      },
    )
    const done = await bench.makeIn('pending')
    await bench.storage.queue.cancel(bench.ref, [done], { code: 'SHUTDOWN', message: 'why' })
    const [cancelled] = await watch(bench, done)
    assert.ok(typeof cancelled === 'object')
    assert.deepEqual([cancelled.state, cancelled.reason, cancelled.message], ['cancelled', 'SHUTDOWN', 'why'])
  })

  rule('T2', 'watch answers for each id, in order', async (bench) => {
    await bench.add('open')
    const done = await bench.makeIn('success')
    const outcomes = await bench.storage.queue.watch(bench.ref, ['nobody', done, 'open'], {
      watcher: 'me',
      ttl: MINUTE,
    })
    assert.deepEqual(
      outcomes.map((outcome) => (typeof outcome === 'object' ? outcome.state : outcome)),
      ['unknown', 'success', 'open'],
    )
  })

  rule(
    'T3',
    'a task whose record is gone is forgotten, one that never was is unknown',
    async (bench) => {
      const id = await bench.makeIn('success')
      await bench.advance(11 * SECOND)
      await bench.prune(NOTHING_KEPT)
      assert.equal(await bench.stateOf(id), 'unknown')
      assert.deepEqual(await watch(bench, id), ['forgotten'])
      assert.deepEqual(await watch(bench, 'nobody'), ['unknown'])
    },
    { moves: 11 * SECOND },
  )

  rule('T4', 'what is published can be read, with everything else that its step did', async (bench) => {
    const peer = await bench.peer()
    const list = ids('t', 20)
    await bench.enqueue(list.map((id) => sketch({ id, watcher: 'me' })))
    await bench.enqueue(list.map((id) => sketch({ id: `${id}.next`, after: { ids: [id], on: 'success' } })))
    const looks: Promise<void>[] = []
    const early: string[] = []
    await peer.notices.subscribe(finalChannel('me'), (message) => {
      const named = idsIn(message).filter((id) => list.includes(id))
      const look = async (): Promise<void> => {
        for (const id of named) {
          const [task, next] = await peer.queue.get(bench.ref, [id, `${id}.next`])
          if (task?.state !== 'success' || next?.state !== 'pending') early.push(id)
        }
      }
      looks.push(look())
    })
    const hand = await bench.hand()
    await hand.claim(20)
    const [first = '', ...rest] = list
    await hand.settle(first, 'success')
    await hand.work({ settlements: rest.map((id) => ending(hand.mark(id), 'success')) })
    await bench.until(() => looks.length > 0, 'nothing was published')
    await bench.quiet()
    await Promise.all(looks)
    assert.deepEqual(early, [], 'told too early')
  })

  rule('T5', 'enqueue can register the watcher in its own step', async (bench) => {
    const heard = await bench.hearFinal('me')
    await bench.add({ id: 'task', watcher: 'me' })
    await settle(bench, 'task', 'success')
    await bench.until(() => names(heard, 'task'), 'nothing was published')
  })

  rule('T6', 'each watcher of a task is told, and only of what it watches', async (bench) => {
    const [me, you, other] = [
      await bench.hearFinal('me'),
      await bench.hearFinal('you'),
      await bench.hearFinal('other'),
    ]
    await bench.add({ id: 'task', watcher: 'me' }, { id: 'next', watcher: 'other' })
    await watch(bench, 'task', 'you')
    await settle(bench, 'task', 'success')
    await bench.until(() => names(me, 'task') && names(you, 'task'), 'one was not told')
    await bench.quiet()
    assert.ok(!other.some((message) => message.split(' ').includes('task')))
  })

  rule('T7', 'a registration lasts its ttl, and a repeat makes it longer', async (bench) => {
    await bench.add('short', 'long')
    const heard: string[] = await bench.hearFinal('me')
    await watch(bench, 'short', 'me', SECOND)
    await watch(bench, 'long', 'me', SECOND)
    await bench.advance(700)
    await watch(bench, 'long', 'me', MINUTE)
    await bench.advance(700)
    await settle(bench, 'short', 'success')
    await settle(bench, 'long', 'success')
    await bench.until(() => names(heard, 'long'), 'the longer registration was lost')
    await bench.quiet()
    assert.ok(
      !heard.some((message) => message.split(' ').includes('short')),
      'the registration outlived its ttl',
    )
  })

  rule('T8', 'a repeat with a shorter ttl takes nothing from a registration', async (bench) => {
    await bench.add('task')
    const heard = await bench.hearFinal('me')
    await watch(bench, 'task', 'me', MINUTE)
    await watch(bench, 'task', 'me', SECOND)
    await bench.advance(1500)
    await settle(bench, 'task', 'success')
    await bench.until(() => names(heard, 'task'), 'the registration became shorter')
  })

  rule('T9', 'a watch and an end at the same time: the one or the other tells', async (bench) => {
    const list = ids('t', 20)
    await bench.add(...list)
    const peer = await bench.peer()
    const heard = await bench.hearFinal('me', peer)
    const hand = await bench.hand()
    await hand.claim(20)
    const told = new Set<string>()
    await Promise.all(
      list.map(async (id, index) => {
        const look = async (): Promise<void> => {
          const [outcome] = await peer.queue.watch(bench.ref, [id], { watcher: 'me', ttl: MINUTE })
          if (typeof outcome === 'object') told.add(id)
        }
        const end = (): Promise<void> => hand.settle(id, 'success')
        await Promise.all(index % 2 ? [look(), end()] : [end(), look()])
      }),
    )
    await bench.until(() => list.every((id) => told.has(id) || names(heard, id)), 'an end was told to nobody')
  })

  rule('T10', 'a retried task ends once more for those who watch it then', async (bench) => {
    const heard = await bench.hearFinal('me')
    const id = await bench.makeIn('failed')
    await bench.operate('retry', id)
    assert.deepEqual(await watch(bench, id), ['open'])
    await settle(bench, id, 'success')
    await bench.until(() => names(heard, id), 'nothing was published')
  })

  rule('T11', 'the repeat of an enqueue registers its watcher too', async (bench) => {
    await bench.add({ id: 'task', nonce: 'n' })
    const heard = await bench.hearFinal('me')
    assert.deepEqual(await bench.enqueue([sketch({ id: 'task', nonce: 'n', watcher: 'me' })]), ['repeated'])
    await settle(bench, 'task', 'success')
    await bench.until(() => names(heard, 'task'), 'nothing was published')
  })

  rule('T13', 'a unit that is refused registers nobody', async (bench) => {
    const heard = await bench.hearFinal('me')
    const id = await bench.makeIn('running')
    const bad = sketch({ id: 'bad', after: { ids: ['nobody'], on: 'final' } })
    await bench.enqueue([[sketch({ id, watcher: 'me' }), bad]])
    await (await bench.hand()).settle(id, 'success')
    await bench.quiet()
    assert.ok(!heard.some((message) => message.split(' ').includes(id)), 'a refused unit left a trace')
  })

  rule('T12', 'many ends in one step name all their ids', async (bench) => {
    const list = ids('t', 30)
    await bench.enqueue(list.map((id) => sketch({ id, watcher: 'me' })))
    const heard = await bench.hearFinal('me')
    await bench.storage.queue.cancel(bench.ref, list)
    await bench.until(() => list.every((id) => names(heard, id)), 'not every id was named')
    await bench.prune(KEEP)
  })
}
