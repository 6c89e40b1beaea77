/**
 * Nodes that stop, die, come late and lose replies, while somebody pauses, triggers and changes their schedule. Afterwards the
 * history has told of each slot once, and what it says is what happened. More of such worlds, and others:
 * `NEOTASK_SCHEDULE_RUNS=500`; one of them again: `NEOTASK_SCHEDULE_SEED`.
 */
import type { StorageCall } from '@neotask/core/testing'
import { expect, it } from 'vitest'
import { randomOf, type Random } from './random.test-helper.js'
import type { Missed, Overlap } from './schedule.js'
import { REF, SECOND, World, type Node } from './world.test-helper.js'

const STEPS = 60
const CALLS: readonly StorageCall[] = [
  'records.claimDue',
  'records.putAll',
  'queue.get',
  'queue.enqueue',
  'queue.cancel',
]
const MISSED: readonly Missed[] = ['skip', 'fireOnce', { catchUp: 3 }, { catchUp: 1000 }]
const OVERLAP: readonly Overlap[] = ['allow', 'skip', 'bufferOne', 'cancelRunning']
/** Tasks of a schedule that have not ended, at most. */
const OPEN: Readonly<Partial<Record<Overlap, number>>> = { skip: 1, bufferOne: 2 }

const { NEOTASK_SCHEDULE_RUNS: runs, NEOTASK_SCHEDULE_SEED: seed } = process.env
const first = runs === undefined ? 1 : process.pid * 1000
const seeds =
  seed === undefined ? Array.from({ length: Number(runs ?? 25) }, (_, run) => first + run) : [Number(seed)]

it.each(seeds)('each slot is told of once, and as it went: world %i', { timeout: 60_000 }, async (of) => {
  const random = randomOf(of)
  const world = new World()
  let nodes = [world.node(), world.node()]
  for (const node of nodes) await node.pool.start()
  const every = random.pick([1000, 3000, 7000])
  const overlap = random.pick(OVERLAP)
  const maxRuns = random.pick([undefined, undefined, 12])
  const options = { missed: random.pick(MISSED), overlap, maxRuns, jitter: random.pick([0, 0, every / 2]) }
  await nodes[0]?.scheduler.submitInterval('x', every, { id: 's', history: 1000, ...options })
  world.holds = random.below(2) === 0
  for (let step = 0; step < STEPS; step++) {
    nodes = await disturb(world, nodes, random)
    await world.advance(random.below(4000))
    expect(await countOpen(world)).toBeLessThanOrEqual(OPEN[overlap] ?? Infinity)
  }
  world.holds = false
  for (const end of world.running.values()) end('late')
  // What is late comes.
  await world.advance(15 * SECOND)
  const last = world.node({ concurrency: 0 })
  await last.scheduler.resume('s')
  await world.advance(30 * SECOND)

  const history = (await last.scheduler.history('s')).filter(({ triggered }) => !triggered).reverse()
  const slots = history.map(({ slot }) => slot.getTime() - world.start)
  expect(slots).toEqual(slots.map((_, n) => (n + 1) * every))
  const fired = history.filter(({ reason }) => reason === undefined)
  expect(fired.map(({ slot }) => slot.getTime() - world.start)).toEqual(await world.tasks('s'))
  const after = await last.scheduler.get('s')
  expect(after?.runs).toBe(fired.length)
  expect(fired.length).toBeLessThanOrEqual(maxRuns ?? Infinity)
  // None is behind the last one that the history knows, but those that are to come.
  const next = after?.next
  if (next !== undefined) expect(next.getTime() - world.start).toBe((slots.at(-1) ?? 0) + every)
  await world.close()
})

async function countOpen(world: World): Promise<number> {
  let count = 0
  for (const state of ['pending', 'scheduled', 'blocked', 'running'] as const) {
    const { tasks } = await world.inner.queue.list(REF, { state, limit: 500 })
    count += tasks.filter(({ id }) => id.startsWith('s~') && !id.startsWith('s~now-')).length
  }
  return count
}

/** @returns the nodes that live */
async function disturb(world: World, nodes: readonly Node[], random: Random): Promise<Node[]> {
  const node = random.pick(nodes)
  const nothing = (): void => {}
  const chance = random.below(100)
  if (chance < 12) {
    const fault = { kind: random.pick(['slow', 'late'] as const), ms: random.below(12_000), times: 1 }
    node.storage.fail(random.pick(CALLS), fault)
  } else if (chance < 20) {
    node.storage.fail(random.pick(CALLS), { kind: random.pick(['before', 'after'] as const), times: 1 })
  } else if (chance < 24) {
    node.die()
    const born = world.node()
    await born.pool.start()
    return [...nodes.filter((other) => other !== node), born]
  } else if (chance < 30) node.scheduler.pause('s').catch(nothing)
  else if (chance < 42) node.scheduler.resume('s').catch(nothing)
  else if (chance < 45) node.scheduler.trigger('s').catch(nothing)
  else if (chance < 48) node.scheduler.update('s', { tags: [random.pick(['a', 'b', 'c'])] }).catch(nothing)
  else if (chance < 70) for (const end of world.running.values()) end('done')
  return [...nodes]
}
