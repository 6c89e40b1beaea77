import fc from 'fast-check'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { PriorityQueue } from './priority-queue.js'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

function filled(keys: readonly number[]): PriorityQueue<string> {
  const queue = new PriorityQueue<string>()
  for (const key of keys) queue.push(key, `v${key}`)
  return queue
}

function drained<T>(queue: PriorityQueue<T>): T[] {
  const values: T[] = []
  while (queue.size > 0) values.push(queue.pop() as T)
  return values
}

describe('PriorityQueue', () => {
  it('is empty at first', () => {
    const queue = new PriorityQueue<string>()
    expect([
      queue.size,
      queue.peek(),
      queue.peekKey(),
      queue.pop(),
      queue.worstKey(),
      queue.popWorst(),
    ]).toEqual([0, undefined, undefined, undefined, undefined, undefined])
    expect(queue.toSorted()).toEqual([])
    expect([...queue.entries()]).toEqual([])
    expect(queue.compact(() => false)).toBe(0)
  })

  it('gives the smallest key first, whatever the order of pushing', () => {
    const queue = filled([5, 1, 4, 9, 2, -3])
    expect([queue.peek(), queue.peekKey(), queue.size]).toEqual(['v-3', -3, 6])
    expect(drained(queue)).toEqual(['v-3', 'v1', 'v2', 'v4', 'v5', 'v9'])
  })

  it('gives the largest key from its other end', () => {
    const queue = filled([5, 1, 9, 4, 2])
    expect([queue.worstKey(), queue.popWorst(), queue.worstKey()]).toEqual([9, 'v9', 5])
    queue.push(3, 'v3')
    expect([queue.popWorst(), queue.popWorst(), queue.popWorst()]).toEqual(['v5', 'v4', 'v3'])
    expect(drained(queue)).toEqual(['v1', 'v2'])
  })

  it('tells what it holds in order, and keeps it', () => {
    const queue = filled([3, 1, 2])
    expect(queue.toSorted()).toEqual(['v1', 'v2', 'v3'])
    expect([...queue.entries()].sort()).toEqual([
      [1, 'v1'],
      [2, 'v2'],
      [3, 'v3'],
    ])
    expect(queue.size).toBe(3)
  })

  it('drops what compact refuses', () => {
    const queue = filled([8, 3, 9, 1, 10, 2, 7])
    expect(queue.compact((value, key) => key % 2 === 1 && value === `v${key}`)).toBe(3)
    expect(queue.size).toBe(4)
    expect(drained(queue)).toEqual(['v1', 'v3', 'v7', 'v9'])
  })

  it('behaves like a sorted list under any mix of operations', () => {
    const operation = fc.oneof(
      { weight: 6, arbitrary: fc.record({ type: fc.constant('push' as const), key: fc.integer() }) },
      { weight: 3, arbitrary: fc.record({ type: fc.constant('pushNext' as const) }) },
      { weight: 4, arbitrary: fc.record({ type: fc.constant('pop' as const) }) },
      { weight: 2, arbitrary: fc.record({ type: fc.constant('popWorst' as const) }) },
      {
        weight: 1,
        arbitrary: fc.record({
          type: fc.constant('compact' as const),
          modulus: fc.integer({ min: 1, max: 5 }),
        }),
      },
    )
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 150, size: 'max' }), (operations) => {
        const queue = new PriorityQueue<number>()
        let model: number[] = []
        for (const op of operations) {
          if (op.type === 'push' || op.type === 'pushNext') {
            const key = op.type === 'push' ? op.key : (model.at(-1) ?? 0) + 1
            if (model.includes(key)) continue
            queue.push(key, key)
            model.push(key)
            model.sort((a, b) => a - b)
          } else if (op.type === 'pop') expect(queue.pop()).toBe(model.shift())
          else if (op.type === 'popWorst') expect(queue.popWorst()).toBe(model.pop())
          else {
            const kept = model.filter((key) => key % op.modulus !== 0)
            expect(queue.compact((_, key) => key % op.modulus !== 0)).toBe(model.length - kept.length)
            model = kept
          }
          const seen = [queue.size, queue.peek(), queue.peekKey(), queue.worstKey()]
          expect(seen).toEqual([model.length, model[0], model[0], model.at(-1)])
        }
        expect(queue.toSorted()).toEqual(model)
        expect(drained(queue)).toEqual(model)
      }),
      { numRuns: 60 },
    )
  })

  it('keeps its order when it is emptied from both ends', () => {
    const keys = fc.uniqueArray(fc.integer(), { minLength: 20, maxLength: 200, size: 'max' })
    fc.assert(
      fc.property(keys, fc.infiniteStream(fc.boolean()), (pushed, fromTheEnd) => {
        const queue = new PriorityQueue<number>()
        // After the largest nothing is in order.
        for (const key of [2 ** 32, ...pushed]) queue.push(key, key)
        const model = [...pushed, 2 ** 32].sort((a, b) => a - b)
        const got: unknown[] = []
        const expected: unknown[] = []
        for (const fromEnd of fromTheEnd) {
          if (model.length === 0) break
          got.push(fromEnd ? queue.popWorst() : queue.pop())
          expected.push(fromEnd ? model.pop() : model.shift())
        }
        expect(got).toEqual(expected)
        expect(queue.size).toBe(0)
      }),
    )
  })

  it('takes no more memory when it goes on for long', () => {
    const queue = new PriorityQueue<number>()
    for (let key = 0; key < 100; key++) queue.push(key, key)
    collect()
    const before = process.memoryUsage().heapUsed
    for (let key = 100; key < 2_000_000; key++) {
      queue.push(key, key)
      queue.pop()
    }
    collect()
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(8e6)
    expect([queue.size, queue.peek()]).toEqual([100, 1_999_900])
  })

  it('lets go of every value that left it', async () => {
    const queue = new PriorityQueue<object>()
    const references: WeakRef<object>[] = []
    const add = (key: number): void => {
      const value = {}
      references.push(new WeakRef(value))
      queue.push(key, value)
    }
    // One part pushed in order and one out of order, and each way to leave.
    for (let key = 1000; key < 1200; key++) add(key)
    for (let key = 999; key >= 800; key--) add(key)
    for (let i = 0; i < 100; i++) queue.pop()
    for (let i = 0; i < 100; i++) queue.popWorst()
    queue.compact((_, key) => key < 950 || key >= 1050)
    for (let i = 0; i < 75; i++) queue.pop()
    const left = queue.size
    expect(left).toBe(25)

    await new Promise((resolve) => setImmediate(resolve))
    collect()
    expect(references.filter((reference) => reference.deref() !== undefined).length).toBe(left)
  })
})
