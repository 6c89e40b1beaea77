/** R: how long final records stay, what protects them, and what their ids leave behind. */
import assert from 'node:assert/strict'
import type { Retention } from '../storage.js'
import { TaskIds } from '../task.js'
import type { Bench, Rule } from './harness.js'
import { codeOf, DAY, HOUR, ids, idsOf, KEEP, MINUTE, SECOND, sketch } from './sketch.js'

const FINAL_STATES = ['success', 'failed', 'cancelled', 'skipped'] as const
const FOREVER = { age: 100 * DAY, count: 1_000_000 }
const NOTHING = { age: 0, count: 0 }
const KEEP_NOTHING: Retention = { success: NOTHING, failed: NOTHING }
/** Records younger than 10 s are kept whatever the rules say. */
const YOUNG = 10 * SECOND
/** A record that was protected may be looked at again only after a minute. */
const LOOK_AGAIN = 65 * SECOND

async function final(
  bench: Bench,
  state: (typeof FINAL_STATES)[number],
  list: readonly string[],
): Promise<void> {
  for (const id of list) {
    await bench.makeIn(state, { id })
    await bench.advance(2)
  }
}

export function retentionRules(rule: Rule): void {
  for (const state of FINAL_STATES) {
    const own = state === 'failed' ? 'failed' : 'success'
    const other = own === 'failed' ? 'success' : 'failed'
    rule(
      `R-age-${state}`,
      `${state} records are removed beyond the age of ${own} ones`,
      async (bench) => {
        await final(bench, state, ['old'])
        await bench.advance(4 * SECOND)
        await final(bench, state, ['new'])
        await bench.advance(YOUNG)
        const retention = {
          [own]: { age: 12 * SECOND, count: 1000 },
          [other]: NOTHING,
        } as unknown as Retention
        await bench.prune({ ...retention, [own]: FOREVER })
        assert.deepEqual(await bench.states('old', 'new'), [state, state])
        await bench.prune(retention)
        assert.deepEqual(await bench.states('old', 'new'), ['unknown', state])
        await bench.census()
      },
      { moves: 15 * SECOND },
    )

    rule(
      `R-count-${state}`,
      `of ${state} records the newest stay, as many as the count of ${own} ones`,
      async (bench) => {
        await final(bench, state, ids('t', 5))
        await bench.advance(YOUNG + SECOND)
        const retention = { [own]: { age: DAY, count: 2 }, [other]: NOTHING } as unknown as Retention
        await bench.prune(retention)
        assert.deepEqual(idsOf(await bench.list({ state })).sort(), ['t0003', 't0004'])
        await bench.census()
      },
      { moves: YOUNG + 2 * SECOND },
    )
  }

  rule(
    'R1',
    'a record younger than 10 s stays, whatever the retention: a repeat may still come',
    async (bench) => {
      const id = await bench.makeIn('success')
      await bench.prune(KEEP_NOTHING)
      await bench.advance(YOUNG - 2 * SECOND)
      await bench.prune(KEEP_NOTHING)
      await bench.stands(id, 'success')
      await (await bench.hand()).settle(id, 'success')
      await bench.advance(3 * SECOND)
      await bench.prune(KEEP_NOTHING)
      assert.equal(await bench.stateOf(id), 'unknown')
    },
    { moves: YOUNG + SECOND },
  )

  rule(
    'R2',
    'what is not final is never removed',
    async (bench) => {
      const waiting = ['pending', 'scheduled', 'running'] as const
      for (const state of waiting) await bench.makeIn(state, { id: state })
      await bench.makeIn('blocked', { id: 'blocked', hold: true })
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING)
      assert.equal((await bench.census()).size, 4)
    },
    { moves: YOUNG + SECOND },
  )

  rule(
    'R3',
    'a record that an unfinished dependent needs stays until that is final',
    async (bench) => {
      await bench.makeIn('success', { id: 'parent' })
      await bench.add({ id: 'child', after: { ids: ['parent'], on: 'success' } })
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING)
      assert.deepEqual(await bench.states('parent', 'child'), ['success', 'pending'])
      const [child] = await (await bench.hand()).claim(1)
      assert.deepEqual(
        child?.parents?.map((parent) => ({ ...parent })),
        [{ id: 'parent', state: 'success' }],
      )
      await bench.prune(KEEP_NOTHING)
      assert.equal(await bench.stateOf('parent'), 'success')
      await (await bench.hand()).settle('child', 'success')
      await bench.advance(LOOK_AGAIN)
      await bench.prune(KEEP_NOTHING)
      assert.deepEqual(await bench.states('parent', 'child'), ['unknown', 'unknown'])
    },
    { moves: YOUNG + SECOND + LOOK_AGAIN },
  )

  rule(
    'R4',
    'pinned records do not keep newer ones from being removed',
    async (bench) => {
      await final(bench, 'success', ids('t', 4))
      await bench.add({ id: 'child', delay: HOUR, after: { ids: ['t0000', 't0001'], on: 'success' } })
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING, 1)
      assert.deepEqual(await bench.states(...ids('t', 4)), ['success', 'success', 'unknown', 'unknown'])
    },
    { moves: YOUNG + 2 * SECOND },
  )

  rule(
    'R5',
    'a record that somebody watches stays for 60 s at least',
    async (bench) => {
      const id = await bench.makeIn('running')
      await bench.storage.queue.watch(bench.ref, [id], { watcher: 'me', ttl: MINUTE })
      await (await bench.hand()).settle(id, 'success')
      await bench.advance(55 * SECOND)
      await bench.prune(KEEP_NOTHING)
      await bench.stands(id, 'success')
      await bench.advance(LOOK_AGAIN)
      await bench.prune(KEEP_NOTHING)
      assert.equal(await bench.stateOf(id), 'unknown')
    },
    { moves: 55 * SECOND + LOOK_AGAIN },
  )

  rule(
    'R6',
    'a removal by retention leaves no trace but the tombstone',
    async (bench) => {
      await final(bench, 'failed', ['a', 'b'])
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING)
      assert.equal((await bench.census()).size, 0)
      assert.deepEqual(await bench.storage.queue.errors(bench.ref, { limit: 10 }), [])
      const operations = [
        'cancel',
        'promote',
        'reprioritize',
        'remove',
        'retry',
        'complete',
        'revoke',
      ] as const
      for (const operation of operations) assert.equal(await bench.operate(operation, 'a'), 'unknown')
    },
    { moves: YOUNG + 2 * SECOND },
  )

  rule(
    'R7',
    'prune removes no more than its limit in a call',
    async (bench) => {
      await final(bench, 'success', ids('t', 7))
      await bench.advance(YOUNG + SECOND)
      let left = 7
      let calls = 0
      for (let answer = 'more'; answer === 'more'; calls++) {
        assert.ok(calls < 20, 'prune does not end')
        answer = await bench.storage.upkeep.prune(bench.ref, KEEP_NOTHING, 2)
        const now = (await bench.storage.queue.counts(bench.ref)).success
        assert.ok(left - now <= 2, `${left - now} in one call`)
        left = now
      }
      assert.deepEqual([left, calls >= 4], [0, true])
      assert.equal(await bench.storage.upkeep.prune(bench.ref, KEEP_NOTHING, 2), 'done')
    },
    { moves: YOUNG + 2 * SECOND },
  )

  rule(
    'R8',
    'beats alone, on an idle queue, remove what is beyond the retention of their session',
    async (bench) => {
      await final(bench, 'success', ids('t', 5))
      await final(bench, 'failed', ['kept'])
      await bench.advance(YOUNG + SECOND)
      const node = await bench.node({ retention: { success: { age: DAY, count: 1 }, failed: FOREVER } })
      for (let beats = 0; beats < 20; beats++) {
        await node.beat()
        await bench.advance(100)
      }
      assert.deepEqual(idsOf(await bench.list({ state: 'success' })), ['t0004'])
      assert.equal(await bench.stateOf('kept'), 'failed')
    },
    { moves: YOUNG + 4 * SECOND },
  )

  for (const [name, id] of [
    ['chosen', 'welcome-42'],
    ['composed', 'run~node#2'],
  ] as const) {
    for (const way of ['prune', 'remove'] as const) {
      const gone = way === 'prune' ? 'is pruned' : 'is removed'
      rule(
        `R-${way}-${name}`,
        `a ${name} id stays taken for 24 h after its record ${gone}`,
        async (bench) => {
          await bench.makeIn('success', { id })
          await bench.advance(YOUNG + SECOND)
          if (way === 'prune') await bench.prune(KEEP_NOTHING)
          else await bench.operate('remove', id)
          assert.equal(await bench.stateOf(id), 'unknown')
          assert.deepEqual(await bench.enqueue([sketch({ id, nonce: 'other' })]), ['duplicate'])
          assert.equal(await bench.stateOf(id), 'unknown')
          const [outcome] = await bench.storage.queue.watch(bench.ref, [id], { watcher: 'me', ttl: MINUTE })
          assert.equal(outcome, 'forgotten')
        },
        { moves: YOUNG + SECOND },
      )
    }
  }

  rule(
    'R9',
    'after 24 h a chosen id is free again, and its task unknown',
    async (bench) => {
      await bench.makeIn('success', { id: 'chosen' })
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING)
      await bench.advance(DAY - MINUTE)
      await bench.prune(KEEP_NOTHING)
      assert.deepEqual(await bench.enqueue([sketch('chosen')]), ['duplicate'])
      await bench.advance(2 * MINUTE)
      await bench.prune(KEEP_NOTHING)
      const [outcome] = await bench.storage.queue.watch(bench.ref, ['chosen'], { watcher: 'me', ttl: MINUTE })
      assert.equal(outcome, 'unknown')
      await bench.add('chosen')
      await bench.stands('chosen', 'pending')
    },
    { moves: DAY },
  )

  rule(
    'R10',
    'a generated id leaves no tombstone',
    async (bench) => {
      const id = new TaskIds(0).next(1_700_000_000_000)
      await bench.makeIn('success', { id })
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING)
      const [outcome] = await bench.storage.queue.watch(bench.ref, [id], { watcher: 'me', ttl: MINUTE })
      assert.equal(outcome, 'unknown')
      assert.deepEqual(await bench.enqueue([sketch(id)]), ['accepted'])
    },
    { moves: YOUNG + SECOND },
  )

  rule(
    'R11',
    'a parent that was pruned is refused as one that never was',
    async (bench) => {
      await bench.makeIn('success', { id: 'parent' })
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING)
      const [outcome] = await bench.enqueue([
        sketch({ id: 'child', after: { ids: ['parent'], on: 'success' } }),
      ])
      assert.equal(codeOf(outcome), 'DEPENDENCY_NOT_FOUND')
    },
    { moves: YOUNG + SECOND },
  )

  rule(
    'R12',
    'a retried task is counted by its new end, not by its old one',
    async (bench) => {
      await final(bench, 'failed', ['again', 'a', 'b'])
      await bench.advance(YOUNG + SECOND)
      await bench.operate('retry', 'again')
      await bench.prune({ success: NOTHING, failed: { age: DAY, count: 1 } })
      assert.deepEqual(await bench.states('again', 'a', 'b'), ['pending', 'unknown', 'failed'])
      const hand = await bench.hand()
      await hand.claim(1)
      await hand.settle('again', 'failed')
      await bench.advance(YOUNG + SECOND)
      await bench.prune({ success: NOTHING, failed: { age: DAY, count: 1 } })
      assert.deepEqual(await bench.states('again', 'b'), ['failed', 'unknown'])
      await bench.prune(KEEP)
    },
    { moves: 2 * (YOUNG + 2 * SECOND) },
  )

  rule(
    'R13',
    'the repeat of a task whose record is gone is told by its nonce',
    async (bench) => {
      await bench.makeIn('success', { id: 'chosen', nonce: 'n' })
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING)
      const outcomes = await bench.enqueue([
        sketch({ id: 'chosen', nonce: 'n' }),
        sketch({ id: 'chosen', nonce: 'm' }),
      ])
      assert.deepEqual(outcomes, ['repeated', 'duplicate'])
      assert.equal(await bench.stateOf('chosen'), 'unknown')
    },
    { moves: YOUNG + SECOND },
  )

  rule(
    'R15',
    'what had to stay, and need not any more, goes before newer records',
    async (bench) => {
      const rule = { age: DAY, count: 2 }
      const retention = { success: rule, failed: rule }
      await final(bench, 'success', ['old'])
      await bench.add({ id: 'child', delay: HOUR, after: { ids: ['old'], on: 'success' } })
      await final(bench, 'success', ['newer', 'new'])
      await bench.advance(YOUNG + SECOND)
      await bench.prune(retention)
      assert.deepEqual(await bench.states('old', 'newer', 'new'), ['success', 'unknown', 'success'])
      await bench.operate('remove', 'child')
      await final(bench, 'success', ['newest'])
      await bench.advance(LOOK_AGAIN)
      await bench.prune(retention)
      assert.deepEqual(await bench.states('old', 'new', 'newest'), ['unknown', 'success', 'success'])
    },
    { moves: YOUNG + LOOK_AGAIN + 2 * SECOND },
  )

  rule(
    'R16',
    'prune comes to an end though more records have to stay than its limit',
    async (bench) => {
      // As many in each state that a search which begins anew at its end has an end in all at once too late.
      const parents = { success: ids('s', 12), failed: ids('f', 16), cancelled: ids('c', 18) } as const
      for (const state of ['success', 'failed', 'cancelled'] as const) {
        for (const id of parents[state]) await bench.makeIn(state, { id })
        await bench.add({
          id: `child of ${state}`.replaceAll(' ', '-'),
          delay: HOUR,
          after: { ids: parents[state], on: 'final' },
        })
      }
      await bench.advance(YOUNG + SECOND)
      await bench.prune(KEEP_NOTHING, 1)
      const counts = await bench.storage.queue.counts(bench.ref)
      assert.deepEqual([counts.success, counts.failed, counts.cancelled], [12, 16, 18])
    },
    { moves: YOUNG + 2 * SECOND },
  )

  rule(
    'R14',
    'a step that ends a task does not remove a parent that the same step names',
    async (bench) => {
      await bench.makeIn('cancelled', { id: 'old' })
      await bench.makeIn('failed', { id: 'failed' })
      await bench.add({ id: 'pin', delay: HOUR, after: { ids: ['failed'], on: 'final' } })
      await bench.advance(YOUNG + SECOND)
      await bench.node({ retention: KEEP_NOTHING })
      const outcomes = await bench.enqueue([
        [
          sketch({ id: 'ends', after: { ids: ['failed'], on: 'success' } }),
          sketch({ id: 'child', after: { ids: ['old'], on: 'final' } }),
        ],
      ])
      assert.deepEqual(outcomes, ['accepted', 'accepted'])
      assert.deepEqual(await bench.states('ends', 'child', 'old'), ['cancelled', 'pending', 'cancelled'])
      await bench.census()
    },
    { moves: YOUNG + SECOND },
  )
}
