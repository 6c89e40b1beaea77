import { expect, it } from 'vitest'
import { Outbox } from './outbox.js'
import type { Settlement } from './storage.js'

const end = (id: string): Settlement => ({ id, token: 1, outcome: 'released' })
const idsIn = ({ settlements }: { settlements: readonly Settlement[] }): string[] =>
  settlements.map(({ id }) => id)

function outboxOf(...ends: [id: string, session: string][]): Outbox {
  const outbox = new Outbox()
  for (const [id, session] of ends) outbox.push(end(id), session)
  return outbox
}

it('takes the ends of one session at a time, in their order', () => {
  const outbox = outboxOf(['a', 'old'], ['b', 'old'], ['c', 'new'], ['d', 'new'])
  expect(idsIn(outbox.take('new', 10))).toEqual([])
  expect(outbox.session).toBe('old')
  const first = outbox.take('old', 1)
  expect(idsIn(first)).toEqual(['a'])
  expect(idsIn(outbox.take('old', 10))).toEqual(['b'])
  expect(idsIn(outbox.take('new', 10))).toEqual(['c', 'd'])
  expect([outbox.waiting, outbox.isEmpty, outbox.session]).toEqual([0, false, undefined])
})

it('sends what was lost again before all others, and what has landed never', () => {
  const outbox = outboxOf(['a', 's'], ['b', 's'], ['c', 's'])
  const first = outbox.take('s', 1)
  const second = outbox.take('s', 1)
  outbox.lost(first)
  outbox.landed(second)
  outbox.lost(second)
  expect(outbox.tasks()).toEqual(['a', 'c'])
  const again = outbox.take('s', 10)
  expect(idsIn(again)).toEqual(['a', 'c'])
  expect(again.settlements[0]).toBe(first.settlements[0])
  outbox.landed(again)
  expect(outbox.isEmpty).toBe(true)
})

it('knows the tasks of a session that are not answered, under way or not', () => {
  const outbox = outboxOf(['a', 'old'], ['b', 'new'])
  outbox.take('old', 1)
  expect(outbox.tasks()).toEqual(['a', 'b'])
  expect(outbox.tasks('old')).toEqual(['a'])
  expect(outbox.tasks('new')).toEqual(['b'])
})
