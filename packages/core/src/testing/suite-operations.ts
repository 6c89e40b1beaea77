/** O: operations by state. Every cell of the table is a case, and so are the conditions beside it. */
import assert from 'node:assert/strict'
import type { OperationOutcome } from '../storage.js'
import { OPERATIONS, TASK_STATES } from '../task.js'
import type { Operation, TaskState } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { HOUR, idsOf, tidy } from './sketch.js'

/** Where a permitted operation takes a task; absent where it stays in its state. */
const LEADS_TO: Readonly<Record<Operation, TaskState | 'unknown' | undefined>> = {
  cancel: 'cancelled',
  promote: 'pending',
  reprioritize: undefined,
  remove: 'unknown',
  retry: 'pending',
  complete: 'success',
  revoke: 'pending',
}

const article = (state: TaskState): string => `a ${state} task`

export function operationRules(rule: Rule): void {
  for (const [operation, permitted] of Object.entries(OPERATIONS) as [Operation, readonly TaskState[]][]) {
    for (const state of TASK_STATES) {
      if (permitted.includes(state)) permittedRule(rule, operation, state)
      else refusedRule(rule, operation, state)
    }
    rule(`O-${operation}-unknown`, `${operation} of an unknown task says unknown`, async (bench) => {
      assert.equal(await bench.operate(operation, 'nobody'), 'unknown')
      assert.equal(await bench.stateOf('nobody'), 'unknown')
    })
  }
  conditionRules(rule)
}

function permittedRule(rule: Rule, operation: Operation, state: TaskState): void {
  const subject = operation === 'complete' ? 'a held task' : article(state)
  const to = LEADS_TO[operation] ?? state
  const effect =
    to === 'unknown' ? 'leaves nothing of it' : to === state ? 'leaves it there' : `makes it ${to}`
  rule(`O-${operation}-${state}`, `${operation} of ${subject} ${effect}`, async (bench) => {
    const id = await bench.makeIn(state, operation === 'complete' ? { hold: true } : {})
    assert.equal(await bench.operate(operation, id), 'done')
    assert.equal(await bench.stateOf(id), to)
    const places = await bench.census()
    assert.equal(places.get(id) ?? 'unknown', to)
    if (operation === 'reprioritize') assert.equal((await bench.get(id)).priority, 7)
  })
}

function refusedRule(rule: Rule, operation: Operation, state: TaskState): void {
  rule(
    `O-${operation}-${state}`,
    `${operation} of ${article(state)} is refused with its state`,
    async (bench) => {
      const id = await bench.makeIn(state)
      await refuses(bench, operation, id, { state })
    },
  )
}

/** The operation answers with the state, and the record stays as it was. */
async function refuses(
  bench: Bench,
  operation: Operation,
  id: string,
  refusal: OperationOutcome,
): Promise<void> {
  const before = await bench.get(id)
  const outcome = await bench.operate(operation, id)
  assert.ok(typeof outcome === 'object', `${operation} is not refused`)
  assert.deepEqual(tidy(outcome), refusal)
  assert.deepEqual(await bench.get(id), before)
  await bench.stands(id, before.state)
}

function conditionRules(rule: Rule): void {
  rule('O-complete-blocked-free', 'complete of a blocked task that is not held is refused', async (bench) => {
    const id = await bench.makeIn('blocked')
    await refuses(bench, 'complete', id, { state: 'blocked' })
  })

  for (const state of OPERATIONS.remove) {
    rule(
      `O-remove-${state}-pinned`,
      `remove of ${article(state)} is refused, with the id of the dependent, while an unfinished one needs it`,
      async (bench) => {
        const parent = await bench.makeIn(state)
        await bench.add({ id: 'child', after: { ids: [parent], on: 'final' } })
        await refuses(bench, 'remove', parent, { state, neededBy: 'child' })
        assert.equal(await bench.operate('cancel', 'child'), 'done')
        assert.equal(await bench.operate('remove', parent), 'done')
        assert.equal(await bench.stateOf(parent), 'unknown')
      },
    )
  }

  rule('O1', 'an operation answers for each id, in order, and one refusal stops no other', async (bench) => {
    const [a, done, b] = [
      await bench.makeIn('pending'),
      await bench.makeIn('success'),
      await bench.makeIn('scheduled'),
    ]
    const outcomes = await bench.storage.queue.cancel(bench.ref, [a, 'nobody', done, b])
    assert.deepEqual(outcomes.map(tidy), ['done', 'unknown', { state: 'success' }, 'done'])
    assert.deepEqual(await bench.states(a, done, b), ['cancelled', 'success', 'cancelled'])
  })

  rule('O2', 'an id that is named twice is carried out once', async (bench) => {
    const id = await bench.makeIn('pending')
    const { queue } = bench.storage
    assert.deepEqual((await queue.cancel(bench.ref, [id, id])).map(tidy), ['done', { state: 'cancelled' }])
    assert.deepEqual((await queue.retry(bench.ref, [id, id])).map(tidy), ['done', { state: 'pending' }])
    assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), [id])
  })

  rule('O3', 'an operation on no ids does nothing', async (bench) => {
    const { queue, upkeep } = bench.storage
    for (const outcomes of [
      await queue.cancel(bench.ref, []),
      await queue.retry(bench.ref, []),
      await queue.promote(bench.ref, []),
      await queue.reprioritize(bench.ref, [], 1),
      await queue.remove(bench.ref, []),
      await upkeep.revoke(bench.ref, []),
    ]) {
      assert.deepEqual(outcomes, [])
    }
  })

  rule('O4', 'cancel stores its code and message, TASK_CANCELLED when none is given', async (bench) => {
    const [a, b] = [await bench.makeIn('pending'), await bench.makeIn('running')]
    await bench.storage.queue.cancel(bench.ref, [a])
    await bench.storage.queue.cancel(bench.ref, [b], { code: 'SHUTDOWN', message: 'going home' })
    const records = [await bench.get(a), await bench.get(b)]
    assert.deepEqual(
      records.map(({ reason, message, settledToken }) => ({ reason, message, settledToken })),
      [
        { reason: 'TASK_CANCELLED', message: undefined, settledToken: 0 },
        { reason: 'SHUTDOWN', message: 'going home', settledToken: 0 },
      ],
    )
  })

  rule('O5', 'retry begins another life: no attempts, no reclaims, no end', async (bench) => {
    const hand = await bench.hand()
    await bench.add('task')
    await hand.claim(1)
    await bench.operate('revoke', 'task')
    await hand.claim(1)
    await hand.settle('task', 'retry', { in: 0 })
    await bench.advance(5)
    await hand.claim(1)
    await hand.settle('task', 'failed')
    const failed = await bench.get('task')
    assert.deepEqual([failed.attempts, failed.reclaims], [2, 1])
    await bench.operate('retry', 'task')
    const again = await bench.get('task')
    assert.deepEqual(
      [again.state, again.attempts, again.reclaims, again.reason],
      ['pending', 0, 0, undefined],
    )
    assert.equal(again.payload, 'payload of task')
    const [claimed] = await hand.claim(1)
    assert.deepEqual([claimed?.attempts, claimed?.reclaims], [0, 0])
    await hand.settle('task', 'success')
    assert.equal((await bench.get('task')).state, 'success')
  })

  rule('O6', 'retry may replace the payload', async (bench) => {
    const id = await bench.makeIn('failed')
    const payload = new Uint8Array([0, 255])
    await bench.storage.queue.retry(bench.ref, [id], { payload: { payload, codec: 'raw' } })
    const [claimed] = await (await bench.hand()).claim(1)
    assert.deepEqual([claimed?.payload, claimed?.codec], [payload, 'raw'])
  })

  rule(
    'O7',
    'retry of a task that was cancelled while blocked makes it ready, whatever its parents do',
    async (bench) => {
      const id = await bench.makeIn('blocked')
      await bench.operate('cancel', id)
      await bench.operate('retry', id)
      await bench.stands(id, 'pending')
      await bench.operate('cancel', `${id}.parent`)
      await bench.drain()
      await bench.stands(id, 'pending')
    },
  )

  rule('O8', 'a promoted task is due no more', async (bench) => {
    const id = await bench.makeIn('scheduled', { delay: 500 })
    await bench.operate('promote', id)
    assert.equal((await bench.get(id)).dueAt, undefined)
    const hand = await bench.hand()
    await hand.claim(1)
    await bench.advance(1000)
    await bench.drain()
    assert.deepEqual(await hand.claim(9), [])
    await bench.stands(id, 'running')
  })

  rule('O9', 'a task that gets another priority keeps its age within it', async (bench) => {
    await bench.add({ id: 'a', priority: 5 }, 'b', { id: 'c', priority: 5 }, 'd')
    await bench.storage.queue.reprioritize(bench.ref, ['c', 'a'], 2)
    assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), ['a', 'b', 'c', 'd'])
  })

  rule('O10', 'the priority of a scheduled or blocked task holds when it becomes ready', async (bench) => {
    await bench.add('plain', { id: 'due', delay: 100 }, { id: 'parent', priority: 0 })
    await bench.add({ id: 'child', after: { ids: ['parent'], on: 'final' } })
    await bench.storage.queue.reprioritize(bench.ref, ['due', 'child'], 1)
    const hand = await bench.hand()
    await hand.claim(1)
    await hand.settle('parent', 'success')
    await bench.advance(HOUR / 3600)
    assert.deepEqual(idsOf(await hand.claim(9)), ['child', 'due', 'plain'])
  })

  rule('O11', 'complete stores the result, counts no attempt, and ends what waits for it', async (bench) => {
    await bench.add({ id: 'held', hold: true }, { id: 'child', after: { ids: ['held'], on: 'success' } })
    assert.equal((await bench.get('held')).held, true)
    assert.equal(await bench.storage.queue.complete(bench.ref, 'held', '', 'text'), 'done')
    const { state, result, resultCodec, attempts, settledToken } = await bench.get('held')
    assert.deepEqual(
      { state, result, resultCodec, attempts, settledToken },
      { state: 'success', result: '', resultCodec: 'text', attempts: 0, settledToken: 0 },
    )
    assert.deepEqual(idsOf(await (await bench.hand()).claim(9)), ['child'])
    const again = await bench.storage.queue.complete(bench.ref, 'held', 'other', 'text')
    assert.deepEqual(tidy(again), { state: 'success' })
    assert.equal((await bench.get('held')).result, '')
  })

  rule(
    'O12',
    'removal forgets the needs of a blocked task, so that its parents can go too',
    async (bench) => {
      const child = await bench.makeIn('blocked')
      assert.equal(await bench.operate('remove', child), 'done')
      assert.equal(await bench.operate('remove', `${child}.parent`), 'done')
      assert.equal((await bench.census()).size, 0)
    },
  )
}
