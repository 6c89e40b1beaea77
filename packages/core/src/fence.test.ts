import { expect, it } from 'vitest'
import { Fence } from './fence.js'
import { ManualClock } from './testing/manual-clock.js'

function fenceOf(ttl: number) {
  const clock = new ManualClock()
  const raised: number[] = []
  const fence = new Fence(ttl, clock, (silence) => raised.push(silence))
  fence.lower(fence.now())
  return { clock, fence, raised }
}

it('goes up by itself before the time to live is over, once, and counts from when a renewal was sent', async () => {
  const { clock, fence, raised } = fenceOf(10_000)
  const sent = fence.now()
  await clock.advanceAsync(5000)
  fence.renewed(sent)
  await clock.advanceAsync(3799)
  expect([fence.check(), raised]).toEqual([false, []])
  await clock.advanceAsync(1)
  expect(raised).toEqual([8800])
  expect([fence.isUp, fence.check(), raised.length]).toEqual([true, true, 1])
})

it('stays up through a late renewal, until the storage has said what is held', async () => {
  const { clock, fence } = fenceOf(10_000)
  await clock.advanceAsync(9000)
  fence.renewed(fence.now())
  expect(fence.check()).toBe(true)
  fence.lower(fence.now())
  expect(fence.check()).toBe(false)
})

it('goes up when only the wall clock went on, as over a sleep', () => {
  const { clock, fence, raised } = fenceOf(10_000)
  clock.step(9000)
  expect(fence.isUp).toBe(false)
  expect(fence.check()).toBe(true)
  expect(raised).toEqual([0])
})

it('does nothing more after its end', async () => {
  const { clock, fence, raised } = fenceOf(10_000)
  fence.end()
  await clock.advanceAsync(20_000)
  expect(raised).toEqual([])
})
