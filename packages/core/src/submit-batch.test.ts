import { expect, it } from 'vitest'
import type { Submission } from './lifecycle-manager.js'
import { SubmitBatch } from './submit-batch.js'

const stored = (id: string) => ({ id }) as Submission

it('gives the ids in the order in which they were added, however the answers come', async () => {
  const batch = new SubmitBatch()
  const answers: Submission['answer'][] = []
  for (let n = 0; n < 3; n++) batch.add((answer) => answers.push(answer))
  expect(batch.open).toBe(3)
  const landed = batch.land()
  for (const n of [2, 0, 1]) answers[n]?.(stored(`id-${n}`), true, undefined)
  expect(await landed).toEqual(['id-0', 'id-1', 'id-2'])
  expect(batch.open).toBe(0)
})

it('rejects with the first refusal in their order, when all are answered, and again when asked again', async () => {
  const batch = new SubmitBatch()
  const answers: Submission['answer'][] = []
  const late = new Error('late')
  batch.add((answer) => answers.push(answer))
  batch.add((answer) => answers.push(answer))
  batch.add(() => Promise.reject(late))
  batch.add(() => {
    throw new Error('at once')
  })
  let isOver = false
  const landed = batch.land().finally(() => (isOver = true))
  landed.catch(() => {})
  answers[1]?.(stored('b'), true, new Error('refused'))
  await Promise.resolve()
  expect(isOver).toBe(false)
  answers[0]?.(stored('a'), true, undefined)
  await expect(landed).rejects.toThrow('refused')
  await expect(batch.land()).rejects.toThrow('refused')
})

it('lands at once when nothing is open', async () => {
  expect(await new SubmitBatch().land()).toEqual([])
})
