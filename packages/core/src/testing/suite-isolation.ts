/** I: tenants and queues do not see each other. Every call is made in one queue while others hold the same ids. */
import assert from 'node:assert/strict'
import type { QueueRef } from '../storage.js'
import type { Bench, Rule } from './harness.js'
import { codeOf, HOUR, ids, idsOf, KEEP, MINUTE, names, SECOND, SHORT_TTL } from './sketch.js'

const OTHERS: readonly QueueRef[] = [
  { tenant: 'acme', queue: 'mail2' },
  { tenant: 'acme', queue: 'mai' },
  { tenant: 'acme2', queue: 'mail' },
  { tenant: 'mail', queue: 'acme' },
]

const WAITING = {
  pending: {},
  scheduled: { delay: HOUR },
  held: { hold: true, group: { id: 'run' } },
  child: { after: { ids: ['held'], on: 'final' } },
  done: {},
} as const

/** The same tasks in every queue. */
async function fill(bench: Bench): Promise<void> {
  await bench.makeIn('failed', { id: 'failed' })
  await bench.makeIn('running', { id: 'running' })
  for (const [id, task] of Object.entries(WAITING)) await bench.add({ id, ...task })
  await bench.operate('cancel', 'done')
}

const ALL = ['failed', 'running', ...Object.keys(WAITING)]

/** Each thing that can be done in a queue. */
const DEEDS: Readonly<Record<string, (bench: Bench) => Promise<unknown>>> = {
  enqueue: (bench) => bench.add('new'),
  cancel: (bench) => bench.storage.queue.cancel(bench.ref, ALL),
  retry: (bench) => bench.storage.queue.retry(bench.ref, ALL),
  promote: (bench) => bench.storage.queue.promote(bench.ref, ALL),
  reprioritize: (bench) => bench.storage.queue.reprioritize(bench.ref, ALL, 0),
  remove: (bench) => bench.storage.queue.remove(bench.ref, ['child', 'failed', 'done']),
  complete: (bench) => bench.operate('complete', 'held'),
  revoke: (bench) => bench.operate('revoke', 'running'),
  pause: (bench) => bench.storage.queue.pause(bench.ref, true),
  setGroup: async (bench) => {
    await bench.storage.queue.setGroup(bench.ref, 'run', { cancelled: true })
    await bench.drain()
  },
  work: async (bench) => {
    const hand = await bench.hand()
    await hand.start('running')
    await hand.claim(5)
    await hand.settle('running', 'failed')
  },
  end: async (bench) => bench.storage.session.end((await bench.hand()).session, 10),
  drain: async (bench) => {
    await bench.advance(2 * HOUR)
    await bench.drain()
  },
  prune: async (bench) => {
    await bench.advance(11 * SECOND)
    await bench.prune({ success: { age: 0, count: 0 }, failed: { age: 0, count: 0 } })
  },
  reconcile: (bench) => bench.storage.upkeep.reconcile(bench.ref, 100),
}

const LONG_DEEDS: Readonly<Record<string, number>> = { drain: 2 * HOUR, prune: 11 * SECOND }

export function isolationRules(rule: Rule): void {
  for (const [name, deed] of Object.entries(DEEDS)) {
    rule(
      `I-${name}`,
      `${name} in one queue changes nothing in another queue or tenant`,
      async (bench) => {
        const others = OTHERS.map((ref) => bench.at(ref))
        for (const queue of [bench, ...others]) await fill(queue)
        const look = (): Promise<unknown[]> =>
          Promise.all(
            others.map(async ({ storage, ref }) => [
              await storage.queue.get(ref, ALL),
              await storage.queue.counts(ref),
              await storage.queue.errors(ref, { limit: 10 }),
              await storage.queue.history(ref, { from: 0, to: 8.64e15 }),
            ]),
          )
        const before = await look()
        await deed(bench)
        assert.deepEqual(await look(), before)
        for (const other of others) await other.census()
      },
      { moves: LONG_DEEDS[name] ?? 0 },
    )
  }

  rule('I1', 'a session claims from its own queue only', async (bench) => {
    const [other, stranger] = [
      bench.at({ tenant: 'acme', queue: 'mail2' }),
      bench.at({ tenant: 'acme2', queue: 'mail' }),
    ]
    await bench.add('a', 'b')
    await other.add('a')
    await stranger.add('a', 'c')
    const [mine, theirs] = [await bench.node(), await stranger.node()]
    assert.deepEqual(idsOf(await mine.claim(9)), ['a', 'b'])
    assert.deepEqual(idsOf(await theirs.claim(9)), ['a', 'c'])
    await mine.settle('a', 'success')
    assert.deepEqual(
      [await bench.stateOf('a'), await other.stateOf('a'), await stranger.stateOf('a')],
      ['success', 'pending', 'running'],
    )
  })

  rule('I2', 'a settlement reaches the task of its own queue only', async (bench) => {
    const other = bench.at({ tenant: 'acme2', queue: 'mail' })
    await bench.makeIn('running', { id: 'task' })
    await other.makeIn('running', { id: 'task' })
    const [mine, theirs] = [await bench.hand(), await other.hand()]
    assert.equal(
      (await theirs.work({ settlements: [{ ...mine.mark('task'), outcome: 'released' }] })).stale.length,
      1,
    )
    assert.deepEqual([await bench.stateOf('task'), await other.stateOf('task')], ['running', 'running'])
  })

  rule('I3', 'a watcher is told of the task of its own queue only', async (bench) => {
    const other = bench.at({ tenant: 'acme2', queue: 'mail' })
    for (const queue of [bench, other]) await queue.add('task')
    await bench.storage.queue.watch(bench.ref, ['task'], { watcher: 'me', ttl: MINUTE })
    const heard = await bench.hearFinal('me')
    await other.operate('cancel', 'task')
    await bench.quiet()
    assert.ok(!heard.some((message) => message.split(' ').includes('task')))
    await bench.operate('cancel', 'task')
    await bench.until(() => names(heard, 'task'), 'nothing was published')
  })

  rule('I4', 'a parent is a task of the same queue', async (bench) => {
    const other = bench.at({ tenant: 'acme', queue: 'mail2' })
    await other.add('parent')
    const task = { id: 'child', kind: 'job', payload: '', codec: 'json', priority: 2 }
    const [outcome] = await bench.enqueue([{ ...task, after: { ids: ['parent'], on: 'final' } }])
    assert.equal(codeOf(outcome), 'DEPENDENCY_NOT_FOUND')
  })

  rule('I5', 'lists show the tasks of their own queue only, in every state', async (bench) => {
    const other = bench.at({ tenant: 'acme2', queue: 'mail' })
    await bench.add('mine')
    await fill(other)
    assert.deepEqual([...(await bench.census()).keys()], ['mine'])
    assert.equal((await other.census()).size, ALL.length)
  })

  rule('I6', 'reclaim says in which queue each task was', async (bench) => {
    const other = bench.at({ tenant: 'acme2', queue: 'mail' })
    const nodes = []
    for (const queue of [bench, other]) {
      await queue.add(...ids('t', 2))
      const node = await queue.node({ ttl: SHORT_TTL })
      await node.claim(2)
      nodes.push(node)
    }
    const { reclaimed } = await bench.lose(...nodes)
    const told = reclaimed.map(({ tenant, queue, id }) => `${tenant}/${queue} ${id}`).sort()
    assert.deepEqual(told, ['acme/mail t0000', 'acme/mail t0001', 'acme2/mail t0000', 'acme2/mail t0001'])
    await bench.prune(KEEP)
    await bench.advance(SECOND)
    for (const queue of [bench, other])
      assert.deepEqual(await queue.states(...ids('t', 2)), ['pending', 'pending'])
  })
}
