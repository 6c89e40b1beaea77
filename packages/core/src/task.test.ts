import { expect, test } from 'vitest'
import { checkTaskId, GENERATORS, isGeneratedId, TaskIds } from './task.js'

test('generators make different ids, each in the order of their making', () => {
  const ids = [0, 1, 61, 62, GENERATORS - 1, GENERATORS + 2].map((number) => {
    const generator = new TaskIds(number)
    return Array.from({ length: 10_000 }, (_, i) => generator.next(1_800_000_000_000 + Math.floor(i / 100)))
  })
  expect(new Set(ids.flat()).size).toBe(60_000)
  for (const own of ids) expect([...own].sort()).toEqual(own)
  expect(ids.flat().every((id) => id.length === 14 && isGeneratedId(id))).toBe(true)
})

test('a generated id may be submitted again, and nothing that a caller chooses or the library composes looks like one', () => {
  const id = new TaskIds(7).next(1_800_000_000_000)
  expect(checkTaskId(id)).toBe(id)
  for (const other of ['order2024-1234', 'abcdefghijklmn']) {
    expect(checkTaskId(other)).toBe(other)
    expect(isGeneratedId(other)).toBe(false)
  }
  for (const composed of ['order2024~ship', '~bcdefghijklmn', 'abcdefghijkl#2', `${id}a`]) {
    expect(() => checkTaskId(composed)).toThrow('id: expected 1 to 128 characters')
    expect(isGeneratedId(composed)).toBe(false)
  }
})
