/** What becomes of the slots that have come when their schedule is given another definition, or goes on after a pause. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { HOUR, MINUTE, SECOND, World, type Node } from './world.test-helper.js'

let world: World
let node: Node

beforeEach(() => {
  world = new World()
  node = world.node()
})

afterEach(async () => {
  await world.close()
})

/** A schedule whose first slot was fired by a node that died before it could put the record back. */
async function firedByTheDead(options: object): Promise<Node> {
  const dead = world.node({ concurrency: 0 })
  await dead.pool.start()
  await dead.scheduler.submitInterval('x', '10s', { id: 's', ...options })
  dead.storage.intercept('records.putAll', () => {
    dead.die()
    return Promise.reject(new Error('killed'))
  })
  await world.advance(10 * SECOND)
  return dead
}

describe('another definition', () => {
  it('with another end leaves an interval where it was anchored', async () => {
    await node.pool.start()
    const deploy = () =>
      node.scheduler.submitInterval('x', '1m', { id: 's', end: world.at(world.time + HOUR) })
    await deploy()
    for (let turn = 0; turn < 3; turn++) {
      await world.advance(50 * SECOND)
      await deploy()
    }
    expect(await world.tasks('s')).toEqual([MINUTE, 2 * MINUTE])
    expect(await node.scheduler.get('s')).toMatchObject({ next: new Date(world.at(3 * MINUTE)) })
    await expect(node.scheduler.update('s', { end: world.at(3 * MINUTE - 1) })).rejects.toMatchObject({
      code: 'WINDOW_INVALID',
    })
  })

  it.each<[string, object]>([
    ['another end', { zone: 'Europe/Berlin', end: Date.UTC(2030, 0) }],
    ['its zone spelt otherwise', { zone: 'europe/berlin' }],
    ['other data', { zone: 'Europe/Berlin', priority: 7 }],
  ])('with %s keeps a slot that is due or waits for its jitter', async (_what, options) => {
    const { scheduler } = node
    const jitter = '55s'
    await scheduler.submitCron('x', '* * * * *', { id: 'due', zone: 'Europe/Berlin' })
    await scheduler.submitCron('x', '* * * * *', { id: 'put-off', zone: 'Europe/Berlin', jitter })
    node.die()
    await world.advance(MINUTE + SECOND)
    const other = world.node()
    await other.scheduler.submitCron('x', '* * * * *', { id: 'due', ...options })
    await other.scheduler.submitCron('x', '* * * * *', { id: 'put-off', jitter, ...options })
    expect(await world.tasks('put-off')).toEqual([])
    await world.advance(57 * SECOND)
    expect([await world.tasks('due'), await world.tasks('put-off')]).toEqual([[MINUTE], [MINUTE]])
  })

  it('whose slots are others tells of those that came', async () => {
    const { scheduler } = node
    await scheduler.submitCron('x', '* * * * *', { id: 'put-off', jitter: '55s' })
    await scheduler.submitInterval('x', '10s', { id: 'paused', start: world.at(40 * SECOND) })
    await scheduler.pause('paused')
    await world.advance(MINUTE + SECOND)
    await scheduler.update('put-off', { expression: '30 * * * * *' })
    await scheduler.update('paused', { every: '20s', start: world.at(MINUTE) })
    expect(await world.history(node, 'put-off')).toEqual([[MINUTE, 'missed']])
    const slots = [40 * SECOND, 50 * SECOND, MINUTE]
    expect(await world.history(node, 'paused')).toEqual(slots.map((slot) => [slot, 'paused']))
    await scheduler.resume('paused')
    expect(await scheduler.preview('paused', 1)).toEqual([new Date(world.at(80 * SECOND))])
  })

  it('counts a slot that a dead node had fired', async () => {
    await firedByTheDead({ maxRuns: 2 })
    await node.scheduler.update('s', { every: '4s' })
    await node.pool.start()
    await world.advance(MINUTE)
    expect(await world.tasks('s')).toEqual([10_000, 14_000])
    expect(await node.scheduler.get('s')).toMatchObject({ state: 'ended', runs: 2 })
  })
})

describe('the end of a pause', () => {
  it('counts a slot that a dead node had fired', async () => {
    await firedByTheDead({ maxRuns: 2 })
    await node.scheduler.pause('s')
    await world.advance(15 * SECOND)
    await node.scheduler.resume('s')
    expect(await node.scheduler.get('s')).toMatchObject({ runs: 1, lastTask: `s~${world.at(10_000)}` })
    await node.pool.start()
    await world.advance(MINUTE)
    expect(await world.history(node, 's')).toEqual([
      [10_000, 'success'],
      [20_000, 'paused'],
      [30_000, 'success'],
    ])
  })

  it('finds it also behind thousands of slots', async () => {
    await firedByTheDead({ maxRuns: 1 })
    await node.scheduler.pause('s')
    world.clock.leap(30_000 * SECOND)
    await node.scheduler.resume('s')
    expect(await node.scheduler.get('s')).toMatchObject({ runs: 1, state: 'ended' })
    const history = await node.scheduler.history('s')
    expect(history[0]).toMatchObject({ slot: new Date(world.at(30_010 * SECOND)), reason: 'paused' })
  })

  it('looks again when the node that fired puts the record back meanwhile', async () => {
    const slow = world.node({ concurrency: 0 })
    await slow.pool.start()
    await slow.scheduler.submitInterval('x', '1s', { id: 's' })
    let open = (): void => {}
    const gate = new Promise<void>((resolve) => (open = resolve))
    const held = slow.storage.intercept('records.putAll', async (forward) => {
      held.end()
      await gate
      return await forward()
    })
    await world.advance(SECOND)
    await node.scheduler.pause('s')
    await world.advance(3 * SECOND)
    const look = node.storage.intercept('queue.get', async (forward) => {
      look.end()
      open()
      await world.clock.settle()
      return await forward()
    })
    await node.scheduler.resume('s')
    expect(await node.scheduler.get('s')).toMatchObject({ runs: 1 })
    expect(await world.history(node, 's')).toEqual([
      [1000, 'pending'],
      [2000, 'paused'],
      [3000, 'paused'],
      [4000, 'paused'],
    ])
  })
})
