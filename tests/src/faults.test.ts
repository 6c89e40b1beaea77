/** The list of seeded faults fits the sources, and the search for them works. All of them: `npm run faults`. */
import { afterAll, describe, expect, it } from 'vitest'
import { FaultyCore, sourceOf, withFault } from './fault-search.js'
import { FAULTS } from './seeded-faults.js'

describe('the list of faults', () => {
  it.each(FAULTS)('has a text that stands in $file once: $name', (fault) => {
    expect(withFault(sourceOf(fault), fault)).not.toBe(sourceOf(fault))
  })

  it('refuses a text that stands there not at all, or twice', () => {
    const fault = { name: 'n', file: 'f.ts', text: 'aa', fault: 'b' }
    expect(() => withFault('no', fault)).toThrow('stands 0 times in f.ts')
    expect(() => withFault('aa aa', fault)).toThrow('stands 2 times in f.ts')
    expect(withFault('x aa y', fault)).toBe('x b y')
  })
})

describe('the search', () => {
  const core = new FaultyCore()
  afterAll(() => core.remove())

  it('finds a fault, by the suite and at random', { timeout: 120_000 }, async () => {
    const fault = FAULTS.find(({ name }) => name === 'a settlement is accepted whatever its token')
    expect(fault).toBeDefined()
    const found = await core.search(fault!, { runs: 20, patience: 100_000 })
    expect(found.suite).toContain('W12')
    expect(found.random?.length).toBeLessThan(10)
  })
})
