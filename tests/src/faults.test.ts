/** The list of seeded faults fits the sources, and the search for them works. All of them: `npm run faults`. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { FaultyCore, sourceOf, withFault } from './fault-search.js'
import { FAULTS } from './seeded-faults.js'

describe('the list of faults', () => {
  it('is that of the reference page, which says of each who finds it', () => {
    const page = readFileSync(
      join(import.meta.dirname, '..', '..', 'docs', 'reference', 'random-test.md'),
      'utf8',
    )
    const table = page.slice(page.indexOf('## Seeded faults'))
    const rows = [...table.matchAll(/^\| ([^|]+) \| (no)?[^|]+ \| run \d+, \d+ commands \|$/gm)]
    expect(rows.map(([, name, no]) => [name, no !== undefined])).toEqual(
      FAULTS.map(({ name, unseenBySuite }) => [name, unseenBySuite !== undefined]),
    )
    const seen = FAULTS.filter(({ unseenBySuite }) => unseenBySuite === undefined)
    expect(table).toContain(`finds all ${FAULTS.length} of these within 200 runs, the suite ${seen.length}.`)
  })

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
