/** K: records, small durable values with compare-and-set. L: locks, with fencing numbers. */
import assert from 'node:assert/strict'
import { show } from '../errors.js'
import type { Encoded, StoredRecord } from '../storage.js'
import type { Bench, Rule } from './harness.js'
import { HOUR, ids, KEEP, MINUTE, SECOND } from './sketch.js'
import { PAYLOADS } from './suite-enqueue.js'

const TENANT = 'acme'

async function keysOf(
  bench: Bench,
  query: { prefix?: string; label?: string },
  limit = 2,
): Promise<string[]> {
  const keys: string[] = []
  let cursor: string | undefined
  for (let pages = 0; pages < 100; pages++) {
    const page = await bench.storage.records.list(TENANT, {
      ...query,
      limit,
      ...(cursor !== undefined && { cursor }),
    })
    assert.ok(page.records.length <= limit)
    keys.push(...page.records.map((record) => record.key))
    if (page.cursor === undefined) return keys
    cursor = page.cursor
  }
  assert.fail('the list does not end')
}

const keys = (records: readonly StoredRecord[]): string[] => records.map((record) => record.key)

/** The keys of the due records that a claim took, in their order. */
async function claim(
  records: Bench['storage']['records'],
  query: { prefix?: string; limit: number; leaseMs: number },
  tenant: string = TENANT,
): Promise<string[]> {
  return keys((await records.claimDue(tenant, query)).records)
}

export function recordRules(rule: Rule): void {
  rule('K1', 'a record is what was put last, with a version that grows by 1', async (bench) => {
    const { records } = bench.storage
    assert.equal(await records.get(TENANT, 'key'), undefined)
    const first = await records.put(TENANT, 'key', 'one')
    assert.ok(Number.isSafeInteger(first))
    const second = await records.put(TENANT, 'key', 'two', { labels: ['a', 'b'] })
    assert.equal(second, Number(first) + 1)
    const record = await records.get(TENANT, 'key')
    assert.deepEqual([record?.key, record?.value, record?.version], ['key', 'two', second])
    assert.deepEqual([...(record?.labels ?? [])].sort(), ['a', 'b'])
    assert.deepEqual([record?.dueAt, record?.expiresAt], [undefined, undefined])
  })

  rule(
    'K2',
    'a put with a version holds only for that version, and 0 means that there is none',
    async (bench) => {
      const { records } = bench.storage
      assert.equal(await records.put(TENANT, 'key', 'no', { ifVersion: 1 }), 'conflict')
      const version = await records.put(TENANT, 'key', 'one', { ifVersion: 0 })
      assert.ok(typeof version === 'number')
      for (const ifVersion of [0, version - 1, version + 1])
        assert.equal(await records.put(TENANT, 'key', 'two', { ifVersion }), 'conflict')
      assert.equal((await records.get(TENANT, 'key'))?.value, 'one')
      assert.equal(await records.put(TENANT, 'key', 'two', { ifVersion: version }), version + 1)
      assert.equal((await records.get(TENANT, 'key'))?.value, 'two')
    },
  )

  rule('K3', 'of many puts with one version, from any process, one holds', async (bench) => {
    const peer = await bench.peer()
    const version = await bench.storage.records.put(TENANT, 'key', 'start')
    assert.ok(typeof version === 'number')
    const outcomes = await Promise.all(
      ids('v', 10).map((value, index) =>
        (index % 2 ? peer : bench.storage).records.put(TENANT, 'key', value, { ifVersion: version }),
      ),
    )
    assert.equal(outcomes.filter((outcome) => outcome !== 'conflict').length, 1)
    const winner = outcomes.findIndex((outcome) => outcome !== 'conflict')
    assert.equal((await bench.storage.records.get(TENANT, 'key'))?.value, ids('v', 10)[winner])
  })

  rule(
    'K4',
    'delete says whether the record was there, and holds with the right version only',
    async (bench) => {
      const { records } = bench.storage
      assert.equal(await records.delete(TENANT, 'key'), false)
      const version = await records.put(TENANT, 'key', 'one', { labels: ['a'], dueIn: 0 })
      assert.ok(typeof version === 'number')
      assert.equal(await records.delete(TENANT, 'key', { ifVersion: version + 1 }), false)
      assert.equal(await records.delete(TENANT, 'key', { ifVersion: version }), true)
      assert.equal(await records.get(TENANT, 'key'), undefined)
      assert.deepEqual(await keysOf(bench, { label: 'a' }), [])
      assert.deepEqual(await claim(records, { limit: 10, leaseMs: SECOND }), [])
      assert.ok(typeof (await records.put(TENANT, 'key', 'two', { ifVersion: 0 })) === 'number')
    },
  )

  rule('K5', 'values come back as they were, text as text and bytes as bytes', async (bench) => {
    for (const [index, given] of PAYLOADS.entries())
      await bench.storage.records.put(TENANT, `k${index}`, given)
    const check = (found: Encoded | undefined, given: Encoded): void => {
      assert.equal(typeof found, typeof given)
      if (typeof given === 'string') assert.equal(found, given)
      else assert.deepEqual([...((found ?? []) as Uint8Array)], [...given])
    }
    const { records } = await bench.storage.records.list(TENANT, { limit: 100 })
    for (const [index, given] of PAYLOADS.entries()) {
      check((await bench.storage.records.get(TENANT, `k${index}`))?.value, given)
      check(records.find((record) => record.key === `k${index}`)?.value, given)
    }
  })

  rule('K6', 'records are listed by key, page by page, and narrowed by prefix', async (bench) => {
    for (const key of ['b:2', 'a', 'b:1', 'c', 'b', 'b:3']) await bench.storage.records.put(TENANT, key, key)
    for (const limit of [1, 2, 100]) {
      assert.deepEqual(await keysOf(bench, {}, limit), ['a', 'b', 'b:1', 'b:2', 'b:3', 'c'])
      assert.deepEqual(await keysOf(bench, { prefix: 'b:' }, limit), ['b:1', 'b:2', 'b:3'])
    }
    assert.deepEqual(await keysOf(bench, { prefix: 'x' }), [])
  })

  rule('K7', 'a prefix and a label mean their own characters', async (bench) => {
    const { records } = bench.storage
    for (const key of ['a_b', 'axb', 'a%c', 'axc', 'A_b', 'a*d', 'axd'])
      await records.put(TENANT, key, '', { labels: [key] })
    assert.deepEqual(await keysOf(bench, { prefix: 'a_' }), ['a_b'])
    assert.deepEqual(await keysOf(bench, { prefix: 'a%' }), ['a%c'])
    assert.deepEqual(await keysOf(bench, { prefix: 'a*' }), ['a*d'])
    assert.deepEqual(await keysOf(bench, { label: 'a_b' }), ['a_b'])
    assert.deepEqual(await keysOf(bench, { label: 'a' }), [])
  })

  rule('K8', 'a label finds the records that have it now', async (bench) => {
    const { records } = bench.storage
    for (const key of ids('k', 5))
      await records.put(TENANT, key, '', { labels: ['all', key < 'k0002' ? 'low' : 'high'] })
    assert.deepEqual(await keysOf(bench, { label: 'low' }), ['k0000', 'k0001'])
    assert.deepEqual(await keysOf(bench, { label: 'all' }), ids('k', 5))
    assert.deepEqual(await keysOf(bench, { label: 'high', prefix: 'k0003' }), ['k0003'])
    await records.put(TENANT, 'k0000', '', { labels: ['high'] })
    await records.put(TENANT, 'k0001', '')
    assert.deepEqual(await keysOf(bench, { label: 'low' }), [])
    assert.deepEqual(await keysOf(bench, { label: 'high' }), ['k0000', 'k0002', 'k0003', 'k0004'])
  })

  rule('K9', 'due records are claimed longest due first, and by one only', async (bench) => {
    const { records } = bench.storage
    await records.put(TENANT, 'b', '', { dueIn: 200 })
    await records.put(TENANT, 'a', '', { dueIn: 300 })
    await records.put(TENANT, 'c', '', { dueIn: 100 })
    await records.put(TENANT, 'later', '', { dueIn: MINUTE })
    await records.put(TENANT, 'never', '')
    assert.deepEqual(await claim(records, { limit: 10, leaseMs: MINUTE }), [])
    await bench.advance(SECOND)
    assert.deepEqual(await claim(records, { limit: 2, leaseMs: MINUTE }), ['c', 'b'])
    const peer = await bench.peer()
    assert.deepEqual(await claim(peer.records, { limit: 2, leaseMs: MINUTE }), ['a'])
    assert.deepEqual(await claim(records, { limit: 2, leaseMs: MINUTE }), [])
  })

  rule(
    'K10',
    'a claimed record is due again when its lease is over, and its version has grown',
    async (bench) => {
      const { records } = bench.storage
      const version = await records.put(TENANT, 'key', 'value', { dueIn: 0, labels: ['a'] })
      assert.ok(typeof version === 'number')
      const [claimed] = (await records.claimDue(TENANT, { limit: 1, leaseMs: SECOND })).records
      assert.ok(claimed && claimed.version > version)
      assert.deepEqual([claimed.value, [...claimed.labels]], ['value', ['a']])
      assert.equal(await records.put(TENANT, 'key', 'late', { ifVersion: version }), 'conflict')
      assert.deepEqual(await claim(records, { limit: 1, leaseMs: SECOND }), [])
      await bench.advance(SECOND + 100)
      const [again] = (await records.claimDue(TENANT, { limit: 1, leaseMs: SECOND })).records
      assert.ok(again && again.version > claimed.version)
      assert.equal(await records.put(TENANT, 'key', 'late', { ifVersion: claimed.version }), 'conflict')
      assert.ok(typeof (await records.put(TENANT, 'key', 'done', { ifVersion: again.version })) === 'number')
    },
  )

  rule('K11', 'what a put does not give is not set: no due time, no labels, no end', async (bench) => {
    const { records } = bench.storage
    await records.put(TENANT, 'key', 'one', { dueIn: 0, labels: ['a'], expiresIn: SECOND })
    await records.put(TENANT, 'key', 'two')
    assert.deepEqual(await claim(records, { limit: 1, leaseMs: SECOND }), [])
    await bench.advance(2 * SECOND)
    const record = await records.get(TENANT, 'key')
    assert.deepEqual(
      [record?.value, record?.labels, record?.dueAt, record?.expiresAt],
      ['two', [], undefined, undefined],
    )
  })

  rule('K12', 'a due time may be an instant', async (bench) => {
    const { records } = bench.storage
    const now = await bench.time()
    await records.put(TENANT, 'past', '', { dueAt: now - MINUTE })
    await records.put(TENANT, 'future', '', { dueAt: now + MINUTE })
    assert.equal((await records.get(TENANT, 'future'))?.dueAt, now + MINUTE)
    assert.deepEqual(await claim(records, { limit: 9, leaseMs: SECOND }), ['past'])
  })

  rule('K13', 'a claim of due records may be narrowed by prefix', async (bench) => {
    const { records } = bench.storage
    for (const key of ['a:1', 'b:1', 'a:2']) await records.put(TENANT, key, '', { dueIn: 0 })
    assert.deepEqual(await claim(records, { prefix: 'b:', limit: 9, leaseMs: MINUTE }), ['b:1'])
    assert.deepEqual((await claim(records, { prefix: 'a:', limit: 9, leaseMs: MINUTE })).sort(), [
      'a:1',
      'a:2',
    ])
  })

  rule('K14', 'a record that expired is gone from every answer', async (bench) => {
    const { records } = bench.storage
    await records.put(TENANT, 'key', '', { expiresIn: SECOND, labels: ['a'], dueIn: 0 })
    const record = await records.get(TENANT, 'key')
    assert.ok(record?.expiresAt !== undefined && record.dueAt !== undefined)
    assert.ok(Math.abs(record.expiresAt - record.dueAt - SECOND) < 100)
    for (const key of ids('k', 40)) await records.put(TENANT, key, '', { expiresIn: SECOND, labels: ['a'] })
    await bench.advance(SECOND + 100)
    assert.equal(await records.get(TENANT, 'key'), undefined)
    assert.deepEqual([await keysOf(bench, {}), await keysOf(bench, { label: 'a' })], [[], []])
    assert.deepEqual(await claim(records, { limit: 9, leaseMs: SECOND }), [])
    assert.equal(await records.delete(TENANT, 'key'), false)
    assert.ok(typeof (await records.put(TENANT, 'key', 'new', { ifVersion: 0 })) === 'number')
  })

  rule('K15', 'each tenant has records of its own', async (bench) => {
    const { records } = bench.storage
    await records.put('acme', 'key', 'one', { labels: ['a'], dueIn: 0 })
    await records.put('acme2', 'key', 'two', { labels: ['a'], dueIn: 0 })
    assert.deepEqual(
      [(await records.get('acme', 'key'))?.value, (await records.get('acme2', 'key'))?.value],
      ['one', 'two'],
    )
    assert.equal((await records.list('acme', { label: 'a', limit: 10 })).records.length, 1)
    assert.equal((await claim(records, { limit: 10, leaseMs: MINUTE }, 'acme2')).length, 1)
    assert.equal((await claim(records, { limit: 10, leaseMs: MINUTE }, 'acme')).length, 1)
    assert.equal(await records.delete('acme2', 'key'), true)
    assert.equal((await records.get('acme', 'key'))?.value, 'one')
  })

  rule('K16', 'a claim of due records tells the time, and when the next one is due', async (bench) => {
    const { records } = bench.storage
    const look = (limit: number, prefix = 'a:') =>
      records.claimDue(TENANT, { prefix, limit, leaseMs: 5 * SECOND })
    const before = await bench.time()
    const none = await look(10)
    const after = await bench.time()
    assert.ok(Number.isInteger(none.now) && none.now >= before && none.now <= after)
    assert.deepEqual([none.records, none.nextDueIn], [[], undefined])
    const dueAt = none.now + HOUR
    await records.put(TENANT, 'b:1', '', { dueAt: dueAt - MINUTE })
    await records.put(TENANT, 'b:2', '', { dueAt: none.now - MINUTE })
    await records.put(TENANT, 'a:never', '')
    await records.put(TENANT, 'a:gone', '', { dueIn: 100, expiresIn: 1 })
    await records.put(TENANT, 'a:1', '', { dueAt })
    await bench.advance(SECOND)
    const later = await look(10)
    assert.ok(later.now > none.now)
    assert.deepEqual([later.records, later.nextDueIn], [[], dueAt - later.now])
    for (const key of ['a:2', 'a:3', 'a:4']) await records.put(TENANT, key, '', { dueIn: 0 })
    const nothing = await look(0)
    assert.deepEqual([nothing.records, nothing.nextDueIn], [[], 0])
    assert.deepEqual([(await look(2)).nextDueIn, (await look(1)).nextDueIn], [0, 5 * SECOND])
  })

  rule('K17', 'between 100 others that are due before, the next one is found', async (bench) => {
    const { records } = bench.storage
    const { now } = await records.claimDue(TENANT, { limit: 0, leaseMs: SECOND })
    const others = ids('b', 99).map((key, index) => ({
      key,
      value: '',
      options: { dueAt: now + HOUR + index },
    }))
    await records.putAll(TENANT, others)
    const query = { prefix: 'a', limit: 1, leaseMs: SECOND }
    assert.equal((await records.claimDue(TENANT, query)).nextDueIn, undefined)
    await records.put(TENANT, 'a', '', { dueAt: now + 2 * HOUR })
    const found = await records.claimDue(TENANT, query)
    assert.equal(found.nextDueIn, now + 2 * HOUR - found.now)
    // Behind more of them it may say when the last of those is due, and nothing later.
    await records.put(TENANT, 'c', '', { dueAt: now + HOUR })
    const { nextDueIn, now: then } = await records.claimDue(TENANT, query)
    assert.ok(
      nextDueIn !== undefined && nextDueIn >= now + HOUR + 98 - then && nextDueIn <= now + 2 * HOUR - then,
    )
  })

  rule('K18', 'many puts are one step, with an outcome for each', async (bench) => {
    const { records } = bench.storage
    assert.deepEqual(await records.putAll(TENANT, []), [])
    const puts = ids('k', 500).map((key) => ({ key, value: key, options: { ifVersion: 0, labels: ['a'] } }))
    const versions = await records.putAll(TENANT, puts)
    assert.ok(versions.length === 500 && versions.every((version) => typeof version === 'number'))
    const version = Number(versions[2])
    const next = await records.putAll(TENANT, [
      { key: 'k0001', value: 'late', options: { ifVersion: 0 } },
      { key: 'k0002', value: 'next', options: { ifVersion: version, dueIn: 0 } },
      { key: 'new', value: 'first' },
      { key: 'new', value: 'second' },
      { key: 'new', value: 'third', options: { ifVersion: 0 } },
    ])
    assert.deepEqual(next, ['conflict', version + 1, next[2], Number(next[2]) + 1, 'conflict'])
    const values = await Promise.all(['k0001', 'k0002', 'new'].map((key) => records.get(TENANT, key)))
    assert.deepEqual(
      values.map((record) => record?.value),
      ['k0001', 'next', 'second'],
    )
    assert.deepEqual(await claim(records, { limit: 9, leaseMs: SECOND }), ['k0002'])
    assert.equal((await keysOf(bench, { label: 'a' }, 500)).length, 499)
  })

  rule('K19', 'claims go by the group of a key, which ends with its first slash', async (bench) => {
    const { records } = bench.storage
    const all = ['a/1', 'a/2/x', 'ab/1', 'a', 'b/1', 'ä/1', '/1', '/']
    await records.putAll(
      TENANT,
      all.map((key, index) => ({ key, value: '', options: { dueIn: index } })),
    )
    await bench.advance(100)
    const query = { limit: 10, leaseMs: 200 }
    const due = async (prefix: string): Promise<string[]> => {
      await bench.advance(SECOND)
      return await claim(records, { ...query, prefix })
    }
    assert.deepEqual((await due('a/')).sort(), ['a/1', 'a/2/x'])
    assert.deepEqual(await due('a/2'), ['a/2/x'])
    assert.deepEqual((await due('a')).sort(), ['a', 'a/1', 'a/2/x', 'ab/1'])
    assert.deepEqual((await due('/')).sort(), ['/', '/1'])
    assert.deepEqual(await due('ä/'), ['ä/1'])
    assert.deepEqual((await due('')).sort(), [...all].sort())
    assert.deepEqual(await due('c/'), [])
    // The longest due come first, also from several groups.
    const now = await bench.time()
    const late = ['b/1', 'a/1', 'ab/1', 'a']
    await records.putAll(
      TENANT,
      late.map((key, index) => ({ key, value: '', options: { dueAt: now - HOUR + index } })),
    )
    for (const key of late) assert.deepEqual(await claim(records, { limit: 1, leaseMs: MINUTE }), [key])
  })

  rule('K20', 'a record that is made anew never has a version of an earlier one', async (bench) => {
    const { records } = bench.storage
    const peer = await bench.peer()
    const start = await bench.time()
    // Upkeep is that of a queue.
    await bench.add('task')
    let last = 0
    const make = async (from: Bench['storage']['records'], expiresIn?: number): Promise<void> => {
      const first = await from.put(TENANT, 'key', '', { ifVersion: 0, expiresIn })
      assert.ok(Number.isSafeInteger(first) && Number(first) > last, `${first} after ${last}`)
      const puts = ids('v', 100).map((value) => ({ key: 'key', value, options: { expiresIn } }))
      last = Number((await records.putAll(TENANT, puts)).at(-1))
      assert.equal(last, Number(first) + 100)
    }
    // In the same ms.
    await make(records)
    assert.ok(last >= start * 1000)
    for (const each of [records, peer.records, records]) {
      assert.equal(await each.delete(TENANT, 'key', { ifVersion: last }), true)
      await make(peer.records)
    }
    // Whoever read an earlier one meets a conflict.
    const early = last
    await records.delete(TENANT, 'key')
    await records.put(TENANT, 'key', 'new')
    for (let turn = 0; turn < 3; turn++) {
      assert.equal(await records.put(TENANT, 'key', 'late', { ifVersion: early }), 'conflict')
      assert.equal(await records.delete(TENANT, 'key', { ifVersion: early }), false)
      last = Number(await records.put(TENANT, 'key', 'new', { expiresIn: 100 }))
    }
    // One whose end has passed, whether it was removed meanwhile or not.
    await records.putAll(
      TENANT,
      ids('k', 60).map((key) => ({ key, value: '', options: { expiresIn: 100 } })),
    )
    await bench.advance(200)
    const over = ids('v', 2).map((value) => ({ key: 'over', value, options: { expiresIn: 0, ifVersion: 0 } }))
    const versions = (await records.putAll(TENANT, over)).map(Number)
    assert.ok(Number(versions[1]) > Number(versions[0]))
    await bench.storage.upkeep.prune(bench.ref, KEEP, 100)
    assert.ok(Number(await records.put(TENANT, 'over', '')) > Number(versions[1]))
    await bench.advance(200)
    await make(records, 100)
    await bench.advance(200)
    await records.list(TENANT, { limit: 1 })
    await records.put(TENANT, 'other', '')
    await bench.storage.upkeep.prune(bench.ref, KEEP, 100)
    await make(records)
  })

  rule(
    'K21',
    'a put with a time that is no finite number is refused, and with it all puts of the call',
    async (bench) => {
      const { records } = bench.storage
      const bad = [NaN, Infinity, -Infinity, 1e16, '5' as never, null as never]
      for (const name of ['dueIn', 'dueAt', 'expiresIn'] as const) {
        for (const ms of bad) {
          const options = { [name]: ms }
          const refusal = (where: string) => ({
            code: 'OPTION_INVALID',
            message: `${where}${name}: expected a finite number of ms, at most 8.64e15, got ${show(ms)}`,
          })
          await assert.rejects(records.put(TENANT, 'bad', '', options), refusal(''))
          const puts = [
            { key: 'good', value: '' },
            { key: 'bad', value: '', options },
          ]
          await assert.rejects(records.putAll(TENANT, puts), refusal('puts[1].options.'))
        }
      }
      assert.deepEqual(await keysOf(bench, {}), [])
      const far = 8.64e15
      await records.put(TENANT, 'key', '', { dueAt: far, expiresIn: far })
      assert.equal((await records.get(TENANT, 'key'))?.dueAt, far)
      await records.put(TENANT, 'key', '', { dueAt: -far })
      assert.deepEqual(await claim(records, { limit: 1, leaseMs: SECOND }), ['key'])
    },
  )

  rule(
    'K22',
    'a claim of due records ends before their values take more than its bytes, but never without a first one',
    async (bench) => {
      const { records } = bench.storage
      const now = await bench.time()
      const values: [key: string, value: Encoded][] = [
        ['a/1', 'x'.repeat(5000)],
        ['b/1', 'ü'.repeat(500)],
        ['a/2', new Uint8Array(1000)],
        ['b/2', ''],
        ['a/3', 'x'.repeat(400)],
        ['a/4', ''],
        ['a/5', 'xx'],
      ]
      const put = async (): Promise<void> => {
        const puts = values.map(([key, value], index) => {
          return { key, value, options: { dueAt: now - MINUTE + index } }
        })
        await records.putAll(TENANT, puts)
      }
      const next = async (
        maxBytes: number,
        limit = 9,
        prefix = '',
      ): Promise<[string, number | undefined]> => {
        const query = { prefix, limit, leaseMs: 5 * SECOND, maxBytes }
        const { records: claimed, nextDueIn } = await records.claimDue(TENANT, query)
        for (const { key, value } of claimed) assert.deepEqual(value, new Map(values).get(key))
        return [keys(claimed).join(' '), nextDueIn]
      }
      await put()
      assert.deepEqual(await next(2000), ['a/1', 0])
      assert.deepEqual(await next(2000), ['b/1 a/2 b/2', 0])
      assert.deepEqual(await next(401), ['a/3 a/4', 0])
      assert.deepEqual(await next(1), ['a/5', 5 * SECOND])
      // Of one group too, and with what is left for others.
      await put()
      assert.deepEqual(await next(6401, 9, 'a/'), ['a/1 a/2 a/3 a/4', 0])
      assert.deepEqual(await next(0, 9, 'b/'), ['b/1', 0])
      assert.deepEqual(await next(Infinity, 1), ['b/2', 0])
      assert.deepEqual(await next(Infinity, 1), ['a/5', 5 * SECOND])
      // 1 MiB, unless it says how many.
      const large = ids('large', 4).map((key) => ({
        key,
        value: 'x'.repeat(400 * 1024),
        options: { dueIn: 0 },
      }))
      await records.putAll(TENANT, large)
      const query = { prefix: 'large', limit: 9, leaseMs: MINUTE }
      assert.deepEqual(await claim(records, query), ['large0000', 'large0001'])
      assert.deepEqual(await claim(records, query), ['large0002', 'large0003'])
    },
  )

  lockRules(rule)
}

function lockRules(rule: Rule): void {
  rule('L1', 'a lock has one holder; anybody else, and the holder too, is told no', async (bench) => {
    const { locks } = bench.storage
    const taken = await locks.acquire(TENANT, 'key', 'me', MINUTE)
    assert.ok(taken && Number.isSafeInteger(taken.fence))
    assert.equal(await locks.acquire(TENANT, 'key', 'you', MINUTE), undefined)
    assert.equal(await locks.acquire(TENANT, 'key', 'me', MINUTE), undefined)
    assert.ok(await locks.acquire(TENANT, 'other', 'you', MINUTE))
  })

  rule('L2', 'the holder alone releases it', async (bench) => {
    const { locks } = bench.storage
    await locks.acquire(TENANT, 'key', 'me', MINUTE)
    assert.equal(await locks.release(TENANT, 'key', 'you'), false)
    assert.equal(await locks.acquire(TENANT, 'key', 'you', MINUTE), undefined)
    assert.equal(await locks.release(TENANT, 'key', 'me'), true)
    assert.equal(await locks.release(TENANT, 'key', 'me'), false)
    assert.ok(await locks.acquire(TENANT, 'key', 'you', MINUTE))
  })

  rule('L3', 'a lock lapses after its ttl; the holder alone makes that longer', async (bench) => {
    const { locks } = bench.storage
    await locks.acquire(TENANT, 'key', 'me', 2 * SECOND)
    assert.equal(await locks.extend(TENANT, 'key', 'you', MINUTE), false)
    await bench.advance(1200)
    assert.equal(await locks.extend(TENANT, 'key', 'me', 2 * SECOND), true)
    await bench.advance(1200)
    assert.equal(await locks.acquire(TENANT, 'key', 'you', SECOND), undefined)
    await bench.advance(1200)
    assert.equal(await locks.extend(TENANT, 'key', 'me', 2 * SECOND), false)
    assert.equal(await locks.release(TENANT, 'key', 'me'), false)
    assert.ok(await locks.acquire(TENANT, 'key', 'you', SECOND))
  })

  rule('L4', 'a late release or extension of a lapsed lock does not touch the next holder', async (bench) => {
    const { locks } = bench.storage
    await locks.acquire(TENANT, 'key', 'me', SECOND)
    await bench.advance(SECOND + 100)
    await locks.acquire(TENANT, 'key', 'you', MINUTE)
    assert.equal(await locks.release(TENANT, 'key', 'me'), false)
    assert.equal(await locks.extend(TENANT, 'key', 'me', MINUTE), false)
    assert.equal(await locks.acquire(TENANT, 'key', 'third', MINUTE), undefined)
    assert.equal(await locks.extend(TENANT, 'key', 'you', MINUTE), true)
  })

  rule(
    'L5',
    'fencing numbers grow with every holder, and are at least the time in microseconds',
    async (bench) => {
      const { locks } = bench.storage
      const now = await bench.time()
      let last = 0
      for (let turn = 0; turn < 5; turn++) {
        const taken = await locks.acquire(TENANT, 'key', `owner${turn}`, SECOND)
        assert.ok(taken && taken.fence > last)
        assert.ok(taken.fence >= now * 1000)
        last = taken.fence
        if (turn % 2) await locks.release(TENANT, 'key', `owner${turn}`)
        else await bench.advance(SECOND + 100)
      }
    },
  )

  rule('L6', 'of many that want a lock at once, in any process, one gets it', async (bench) => {
    const peer = await bench.peer()
    const answers = await Promise.all(
      ids('owner', 10).map((owner, index) =>
        (index % 2 ? peer : bench.storage).locks.acquire(TENANT, 'key', owner, MINUTE),
      ),
    )
    assert.equal(answers.filter((answer) => answer !== undefined).length, 1)
  })

  rule('L7', 'each tenant has locks of its own', async (bench) => {
    const { locks } = bench.storage
    assert.ok(await locks.acquire('acme', 'key', 'me', MINUTE))
    assert.ok(await locks.acquire('acme2', 'key', 'me', MINUTE))
    assert.equal(await locks.release('acme2', 'key', 'me'), true)
    assert.equal(await locks.extend('acme', 'key', 'me', MINUTE), true)
  })
}
