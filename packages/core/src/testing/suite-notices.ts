/** N: messages, and who is woken when there is work. */
import assert from 'node:assert/strict'
import { CHANGED } from '../storage.js'
import type { BenchNode } from './bench-node.js'
import type { Bench, Rule } from './harness.js'
import { HOUR, idsOf, SECOND, SHORT_TTL } from './sketch.js'

/** What makes tasks ready while a session is idle. */
interface Cause {
  readonly what: string
  /** Before the session becomes idle. */
  readonly before?: (bench: Bench) => Promise<unknown>
  readonly cause: (bench: Bench) => Promise<unknown>
}

const CAUSES: Readonly<Record<string, Cause>> = {
  enqueue: { what: 'a task is enqueued', cause: (bench) => bench.add('new') },
  promote: {
    what: 'a task is promoted',
    before: (bench) => bench.makeIn('scheduled', { id: 'task' }),
    cause: (bench) => bench.operate('promote', 'task'),
  },
  retry: {
    what: 'a task is retried',
    before: (bench) => bench.makeIn('failed', { id: 'task' }),
    cause: (bench) => bench.operate('retry', 'task'),
  },
  release: {
    what: 'a task is released by its parents',
    before: async (bench) => {
      await bench.add({ id: 'parent', hold: true }, { id: 'task', after: { ids: ['parent'], on: 'final' } })
    },
    cause: (bench) => bench.operate('cancel', 'parent'),
  },
  'give-back': {
    what: 'a task is given back',
    before: (bench) => bench.makeIn('running', { id: 'task' }),
    cause: async (bench) => (await bench.hand()).settle('task', 'released'),
  },
  revoke: {
    what: 'a task is revoked',
    before: (bench) => bench.makeIn('running', { id: 'task' }),
    cause: (bench) => bench.operate('revoke', 'task'),
  },
  end: {
    what: 'a session ends that held tasks',
    before: (bench) => bench.makeIn('running', { id: 'task' }),
    cause: async (bench) => bench.storage.session.end((await bench.hand()).session, 10),
  },
  reclaim: {
    what: 'the tasks of a lost session are taken back',
    before: async (bench) => {
      await bench.add('task')
      await (await bench.node({ ttl: SHORT_TTL })).claim(1)
    },
    cause: (bench) => bench.lose(),
  },
  due: {
    what: 'upkeep finds a task due',
    before: (bench) => bench.makeIn('scheduled', { id: 'task', delay: SECOND }),
    cause: async (bench) => {
      await bench.advance(SECOND)
      await bench.drain()
    },
  },
  resume: {
    what: 'a pause of the queue ends',
    before: async (bench) => {
      await bench.storage.queue.pause(bench.ref, true)
      await bench.add('task')
    },
    cause: (bench) => bench.storage.queue.pause(bench.ref, false),
  },
  group: {
    what: 'a pause of a group ends',
    before: async (bench) => {
      await bench.storage.queue.setGroup(bench.ref, 'run', { paused: true })
      await bench.add({ id: 'task', group: { id: 'run' } })
    },
    cause: (bench) => bench.storage.queue.setGroup(bench.ref, 'run', { paused: false }),
  },
}

/** A session whose claim came back short. */
async function idle(bench: Bench, kinds?: readonly string[]): Promise<BenchNode> {
  const node = await bench.node(kinds ? { kinds } : {})
  assert.deepEqual(await node.claim(5), [])
  return node
}

export function noticeRules(rule: Rule): void {
  rule(
    'N1',
    'a message reaches every listener of its channel, in this process and in others, and no other channel',
    async (bench) => {
      const peer = await bench.peer()
      const [one, two, far, other] = [
        await bench.listen('channel'),
        await bench.listen('channel'),
        await bench.listen('channel', peer),
        await bench.listen('other'),
      ]
      await bench.storage.notices.publish('channel', 'hello there')
      const got = (heard: string[]): boolean =>
        heard.some((message) => message === 'hello there' || message === CHANGED)
      await bench.until(() => [one, two, far].every(got), 'a listener heard nothing')
      assert.ok(!other.includes('hello there'))
    },
  )

  rule('N2', 'a subscription that was ended hears nothing more, and may be ended twice', async (bench) => {
    const heard: string[] = []
    const kept = await bench.listen('channel')
    const stop = await bench.storage.notices.subscribe('channel', (message) => heard.push(message))
    await stop()
    await stop()
    await bench.storage.notices.publish('channel', 'late')
    await bench.until(() => kept.length > 0, 'the other listener heard nothing')
    await bench.quiet()
    assert.deepEqual(heard, [])
  })

  rule('N3', 'a message that nobody hears is no error', async (bench) => {
    await bench.storage.notices.publish('channel', '')
    await bench.storage.notices.publish('channel', 'x'.repeat(10_000))
  })

  rule(
    'N4',
    'a listener that throws harms neither the step that published nor the other listeners',
    async (bench) => {
      const node = await idle(bench)
      await bench.storage.notices.subscribe(`wake:${node.session}`, () => {
        throw new Error('a listener that throws')
      })
      const heard = await bench.hearWake(node)
      await bench.add('task')
      await bench.until(() => heard.length > 0, 'the other listener heard nothing')
      assert.deepEqual(idsOf(await node.claim(5)), ['task'])
    },
  )

  for (const [name, { what, before, cause }] of Object.entries(CAUSES)) {
    rule(`N-wake-${name}`, `an idle session is woken when ${what}`, async (bench) => {
      await before?.(bench)
      const node = await idle(bench)
      const heard = await bench.hearWake(node, await bench.peer())
      await bench.quiet()
      heard.length = 0
      await cause(bench)
      await bench.until(() => heard.length > 0, 'the session sleeps on')
      assert.equal((await node.claim(5)).length, 1)
    })
  }

  rule('N5', 'a session becomes idle by a claim that came back short of what it wanted', async (bench) => {
    await bench.add('a')
    const node = await bench.node()
    assert.deepEqual(idsOf(await node.claim(2)), ['a'])
    const heard = await bench.hearWake(node)
    await bench.add('b')
    await bench.until(() => heard.length > 0, 'the session sleeps on')
  })

  rule('N6', 'a session is woken again after each claim that came back short', async (bench) => {
    const node = await idle(bench)
    const heard = await bench.hearWake(node)
    for (const id of ['a', 'b', 'c']) {
      heard.length = 0
      await bench.add(id)
      await bench.until(() => heard.length > 0, `the session sleeps on after ${id}`)
      assert.deepEqual(idsOf(await node.claim(5)), [id])
    }
  })

  rule('N12', 'a session stays idle through a call that claims nothing', async (bench) => {
    await bench.makeIn('running', { id: 'mine' })
    const hand = await bench.hand()
    assert.deepEqual(await hand.claim(1), [])
    await hand.beat()
    await hand.settle('mine', 'success')
    const heard = await bench.hearWake(hand)
    await bench.add('task')
    await bench.until(() => heard.length > 0, 'the session sleeps on')
  })

  rule(
    'N13',
    'an idle session is woken when the claim of another finds a task due that only the first one serves',
    async (bench) => {
      await bench.add({ id: 'task', kind: 'rare', delay: SECOND })
      const [node, other] = [await idle(bench, ['rare']), await idle(bench)]
      const heard = await bench.hearWake(node)
      await bench.advance(SECOND)
      assert.deepEqual(await other.claim(1), [])
      await bench.until(() => heard.length > 0, 'the session sleeps on')
      assert.deepEqual(idsOf(await node.claim(1)), ['task'])
    },
  )

  rule(
    'N14',
    'an idle session is woken to go on with dependents that a step has left to later ones',
    async (bench) => {
      await bench.add({ id: 'a', hold: true })
      for (const [id, parent] of [
        ['b', 'a'],
        ['c', 'b'],
        ['d', 'c'],
      ] as const)
        await bench.add({ id, after: { ids: [parent], on: 'success' } })
      const node = await idle(bench)
      const heard = await bench.hearWake(node)
      await bench.operate('cancel', 'a')
      for (let turns = 0; turns < 5 && (await bench.stateOf('d')) === 'blocked'; turns++) {
        await bench.until(() => heard.length > 0, 'nobody goes on')
        heard.length = 0
        const { nextDueIn } = await node.work({ want: 1 })
        if (nextDueIn === 0) heard.push('again at once')
      }
      assert.equal(await bench.stateOf('d'), 'cancelled')
    },
  )

  rule('N15', 'a session that is over is not woken in place of one that sleeps', async (bench) => {
    await bench.add('task')
    const lost = await bench.node({ ttl: SHORT_TTL })
    assert.deepEqual(idsOf(await lost.claim(2)), ['task'])
    const node = await idle(bench)
    const heard = await bench.hearWake(node)
    await bench.lose(lost)
    await bench.until(() => heard.length > 0, 'the session sleeps on')
    assert.deepEqual(idsOf(await node.claim(1)), ['task'])
  })

  rule(
    'N16',
    'tasks of several kinds that become ready in one step wake a session of each',
    async (bench) => {
      const nodes = [await idle(bench, ['a']), await idle(bench, ['b']), await idle(bench, ['c'])]
      const heard = await Promise.all(nodes.map((node) => bench.hearWake(node)))
      await bench.add({ id: '1', kind: 'a' }, { id: '2', kind: 'b' }, { id: '3', kind: 'c' })
      await bench.until(() => heard.every((messages) => messages.length > 0), 'a session sleeps on')
    },
  )

  rule('N17', 'a session stays idle when an old request of it comes again', async (bench) => {
    await bench.add('task')
    const hand = await bench.hand()
    const reply = await hand.work({ want: 2 })
    assert.equal((await hand.work({ want: 2 })).status, 'again')
    hand.learn(reply)
    const heard = await bench.hearWake(hand)
    await bench.add('next')
    await bench.until(() => heard.length > 0, 'the session sleeps on')
  })

  rule('N7', 'as many tasks as there are idle sessions wake all of them', async (bench) => {
    const nodes = [await idle(bench), await idle(bench), await idle(bench)]
    const heard = await Promise.all(nodes.map((node) => bench.hearWake(node)))
    await bench.add('a', 'b', 'c')
    await bench.until(() => heard.every((messages) => messages.length > 0), 'a session sleeps on')
  })

  rule('N8', 'a session is woken when a task is taken from it', async (bench) => {
    for (const operation of ['cancel', 'revoke'] as const) {
      const id = await bench.makeIn('running')
      const heard = await bench.hearWake(await bench.hand())
      await bench.operate(operation, id)
      await bench.until(() => heard.length > 0, `${operation} is not told`)
      if (operation === 'revoke') await bench.operate('cancel', id)
    }
  })

  rule(
    'N9',
    'a more urgent task than before is published to the sessions of the queue, with its priority',
    async (bench) => {
      await bench.add({ id: 'a', priority: 5 })
      const heard = await bench.hearHead(await bench.peer())
      await bench.quiet()
      heard.length = 0
      await bench.add({ id: 'b', priority: 1 })
      await bench.until(
        () => heard.some((message) => message === '1' || message === CHANGED),
        'nothing was published',
      )
      const node = await bench.node()
      assert.deepEqual(idsOf(await node.claim(1, { moreUrgentThan: 5 })), ['b'])
    },
  )

  rule('N10', 'a task that is no more urgent than the present head is not published', async (bench) => {
    await bench.add({ id: 'a', priority: 1 })
    const heard = await bench.hearHead()
    await bench.quiet()
    heard.length = 0
    await bench.add({ id: 'b', priority: 5 }, { id: 'c', priority: 1 }, { id: 'd', priority: 0, delay: HOUR })
    await bench.quiet()
    assert.deepEqual(
      heard.filter((message) => message !== CHANGED),
      [],
    )
  })

  rule('N11', 'a session that is woken finds the task', async (bench) => {
    const peer = await bench.peer()
    const node = (await idle(bench)).through(peer)
    const found: Promise<unknown>[] = []
    await peer.notices.subscribe(`wake:${node.session}`, () => {
      if (found.length === 0) found.push(peer.queue.get(bench.ref, ['task']))
    })
    await bench.add('task')
    await bench.until(() => found.length > 0, 'the session sleeps on')
    const [record] = (await found[0]) as unknown[]
    assert.ok(record, 'the message came before the step was visible')
  })
}
