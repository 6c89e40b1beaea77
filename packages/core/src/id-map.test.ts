import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { IdMap } from './id-map.js'
import { TaskIds } from './task.js'

/** Ids of two generators, in blocks of which some are all but empty, and ids of other forms. */
function someIds(): string[] {
  const ids = ['mine', 'of/some.length-ab', '!!!!!!!zzaaaa~', 'AAAAAAAé0BBBB~', 'AAAAAAA00BBBB~']
  for (const generator of [new TaskIds(1), new TaskIds(2)]) {
    for (let block = 0; block < 3; block++) {
      for (let i = 0; i < 40; i++) ids.push(generator.next(1e12 + block * 1000))
    }
  }
  return ids
}

describe('IdMap', () => {
  it('answers as a Map does', () => {
    const ids = someIds()
    const step = fc.record({
      what: fc.constantFrom('set', 'set', 'set', 'get', 'take', 'take'),
      id: fc.nat(ids.length - 1),
    })
    const steps = fc.array(step, { maxLength: 400 })
    fc.assert(
      fc.property(steps, (all) => {
        const map = new IdMap<{ n: number }>()
        const model = new Map<string, { n: number }>()
        for (const [n, { what, id: index }] of all.entries()) {
          const id = ids[index] as string
          if (what === 'set') {
            map.set(id, { n })
            model.set(id, { n })
          } else if (what === 'take') {
            expect(map.take(id)).toEqual(model.get(id))
            model.delete(id)
          }
          expect(map.get(id)).toEqual(model.get(id))
          expect(map.size).toBe(model.size)
        }
        expect([...map.values()].sort((a, b) => a.n - b.n)).toEqual(
          [...model.values()].sort((a, b) => a.n - b.n),
        )
        for (const id of ids) expect(map.has(id)).toBe(model.has(id))
      }),
      { numRuns: 300 },
    )
  })

  it('fills no array up for ids that only look like generated ones', () => {
    const map = new IdMap<object>()
    const value = {}
    const chosen = Array.from({ length: 200 }, (_, n) => `customer${n % 10}${String(n).padStart(4, '0')}~`)
    for (const id of chosen) map.set(id, value)
    expect(map.blocks).toBe(0)
    expect(chosen.every((id) => map.take(id) === value)).toBe(true)
    expect(map.size).toBe(0)
  })

  it('keeps no array for the few that are left of many', () => {
    const ids = new TaskIds(0)
    const map = new IdMap<object>()
    const value = {}
    const kept: string[] = []
    for (let block = 0; block < 50; block++) {
      const own = Array.from({ length: 3000 }, () => ids.next(1e12 + block * 1000))
      for (const id of own) map.set(id, value)
      for (const id of own.slice(1)) map.take(id)
      kept.push(own[0] as string)
    }
    expect(map.blocks).toBeLessThan(3)
    expect(map.size).toBe(50)
    expect(kept.every((id) => map.get(id) === value)).toBe(true)
  })
})
