/** The suite and `docs/reference/contract.md` number the same rules, with the same words. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { storageSuite } from './storage-suite.js'

const page = readFileSync(new URL('../../../../docs/reference/contract.md', import.meta.url), 'utf8')

function caseNames(patience?: number): string[] {
  const names: string[] = []
  storageSuite({
    test: (name) => names.push(name),
    open: () => Promise.reject(new Error('no case is run here')),
    ...(patience !== undefined && { patience }),
  })
  return names
}

test('the reference page lists each case of the suite, with its number and its sentence', () => {
  // A list item, or a row of a table of cells.
  const lines = page.matchAll(/^(?:- \*\*(\w+)\*\* (.+)|\| `(\w-[\w-]+)` \| (.+) \|)$/gm)
  const listed = [...lines].map(([, number, sentence, cell, rule]) => `${number ?? cell} ${sentence ?? rule}`)
  expect(listed.sort()).toEqual(caseNames().sort())
})

test('a case that moves the clock for longer than the patience is left out', () => {
  const numbers = (patience?: number) => caseNames(patience).map((name) => name.split(' ')[0])
  expect(numbers(130_000)).toEqual(
    numbers().filter((number) => !['Q15', 'R9', 'I-drain'].includes(number ?? '')),
  )
  expect(numbers(0).length).toBeGreaterThan(400)
})
