/** A fault of this package that shows with one schedule only harms no other. */
import { afterEach, expect, it, vi } from 'vitest'
import { World } from './world.test-helper.js'

vi.mock('./policies.js', async (original) => {
  const real = await original<typeof import('./policies.js')>()
  const planOf: typeof real.planOf = (schedule, now) => {
    if (schedule.id === 'bad') throw new Error('a fault')
    return real.planOf(schedule, now)
  }
  return { ...real, planOf }
})

const world = new World()
afterEach(() => world.close())

it('is told of once, puts that schedule off, and lets the others fire', async () => {
  const node = world.node()
  await node.pool.start()
  for (const id of ['bad', 'good']) await node.scheduler.submitInterval('x', '1s', { id })
  await world.advance(20_000)
  expect(await world.tasks('good')).toHaveLength(20)
  expect(await world.tasks('bad')).toEqual([])
  expect(node.errors.map(String)).toEqual(['Error: a fault'])
})
