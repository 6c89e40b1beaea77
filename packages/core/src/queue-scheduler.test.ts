/** What a node asks for, keeps and starts, by itself: no storage, no session. */
import { describe, expect, it } from 'vitest'
import { Prefetch } from './prefetch.js'
import { QueueScheduler, type QueueSchedulerHost } from './queue-scheduler.js'
import type { Claimed } from './storage.js'
import { ManualClock } from './testing/manual-clock.js'

interface Bench {
  scheduler: QueueScheduler
  /** The ids in the order of their start. */
  started: string[]
  released: string[]
  /** Start marks asked for. */
  marks: number
  running: Map<string, Claimed>
  /** Their places in line, by id. */
  arrivals: Map<string, number>
  fenced: boolean
  clock: ManualClock
  end(id: string): void
}

function bench(concurrency: number, prefetch: number, isApart = false): Bench {
  const clock = new ManualClock()
  const host: QueueSchedulerHost = {
    clock,
    free: () => concurrency - it.running.size,
    fenced: () => it.fenced,
    run: (task, _, __, arrival) => {
      it.started.push(task.id)
      it.running.set(task.id, task)
      it.arrivals.set(task.id, arrival)
    },
    release: ({ id }) => it.released.push(id),
    poke: () => {},
    mark: () => it.marks++,
  }
  const policy = { size: prefetch, strategy: 'hybrid', interval: 100 } as const
  const it: Bench = {
    scheduler: new QueueScheduler(new Prefetch(policy, concurrency), host, isApart),
    started: [],
    released: [],
    marks: 0,
    running: new Map(),
    arrivals: new Map(),
    fenced: false,
    clock,
    end: (id) => {
      it.scheduler.ended(it.running.get(id) as Claimed)
      it.running.delete(id)
      it.scheduler.freed(0)
    },
  }
  return it
}

let tokens = 0
const task = (id: string, options: Partial<Claimed> = {}): Claimed => ({
  id,
  token: ++tokens,
  kind: '',
  payload: '',
  codec: 'json',
  priority: 2,
  attempts: 0,
  reclaims: 0,
  probation: false,
  waited: 0,
  ...options,
})

describe('demand', () => {
  it('is what is missing, and nil while closed or paused', () => {
    const { scheduler } = bench(2, 3)
    expect(scheduler.demand()).toEqual({ want: 5, free: 2 })
    scheduler.add([task('a'), task('b'), task('c'), task('d'), task('e')])
    expect(scheduler.demand()).toEqual({ want: 0 })
    scheduler.pauseHere(true)
    expect(scheduler.demand()).toEqual({ want: 0 })
    scheduler.pauseHere(false)
    expect(scheduler.demand()).toEqual({ want: 3, free: 0 })
    scheduler.stop()
    expect(scheduler.demand()).toEqual({ want: 0 })
  })

  it('is for what is more urgent than the least of a full buffer, when there is such', () => {
    const { scheduler } = bench(1, 2)
    scheduler.add([task('a'), task('b'), task('c', { priority: 3 })])
    scheduler.urgent(3)
    expect(scheduler.demand()).toEqual({ want: 0 })
    scheduler.urgent(2)
    expect(scheduler.demand()).toEqual({ want: 2, moreUrgentThan: 3 })
    scheduler.observed(undefined, false)
    expect(scheduler.demand()).toEqual({ want: 0 })
  })
})

describe('something urgent on its way', () => {
  it('goes first, and what it displaces goes back', () => {
    const { scheduler, started, released, end } = bench(1, 2)
    scheduler.add([task('a'), task('b'), task('c')])
    scheduler.urgent(0)
    end('a')
    expect(started).toEqual(['a'])
    scheduler.add([task('u', { priority: 0 })])
    expect(started).toEqual(['a', 'u'])
    scheduler.observed(undefined, false)
    scheduler.add([task('v', { priority: 1 })])
    expect(released).toEqual(['c'])
  })

  it('holds nothing up when the call for it fails', () => {
    const { scheduler, started, end } = bench(1, 2)
    scheduler.add([task('a'), task('b'), task('c')])
    scheduler.urgent(0)
    end('a')
    scheduler.troubled()
    expect(started).toEqual(['a', 'b'])
  })
})

describe('a task that is put back', () => {
  it('waits in its old place, and starts once a slot is free', () => {
    const bed = bench(3, 3)
    const { scheduler, started, arrivals, running } = bed
    const tasks = ['a', 'b', 'c', 'd', 'e'].map((id) => task(id))
    scheduler.add(tasks)
    scheduler.add([task('u', { priority: 0 })])
    expect(started).toEqual(['a', 'b', 'c'])
    for (const { id } of tasks.slice(1, 3)) running.delete(id)
    // In whatever order they come.
    for (const back of [tasks[2], tasks[1]] as Claimed[]) {
      scheduler.putBack(back, arrivals.get(back.id) as number)
    }
    expect(started).toHaveLength(3)
    expect(scheduler.holding().sort()).toEqual(['b', 'c', 'd', 'e', 'u'])
    scheduler.freed(0)
    expect(started.slice(3)).toEqual(['u', 'b'])
    bed.end('u')
    bed.end('b')
    bed.end('c')
    expect(started.slice(5)).toEqual(['c', 'd', 'e'])
  })

  it('keeps its place when it waited for a mark or for another', () => {
    const bed = bench(2, 4)
    const { scheduler, started, arrivals, running } = bed
    const [alone, other] = [task('x', { reclaims: 1 }), task('y', { reclaims: 1 })]
    scheduler.add([alone, other, task('a'), task('b')])
    scheduler.marked(scheduler.marks())
    bed.end('x')
    scheduler.marked(scheduler.marks())
    expect(started).toEqual(['a', 'x', 'y'])
    expect([...arrivals]).toEqual([
      ['a', 2],
      ['x', 0],
      ['y', 1],
    ])
    running.delete('y')
    scheduler.ended(other)
    scheduler.putBack(other, 1)
    scheduler.freed(0)
    expect(scheduler.marks().map(({ id }) => id)).toEqual(['y'])
    expect(started).not.toContain('b')
  })

  it('goes back to the storage when nothing is to start here, or when there is too much', () => {
    const { scheduler, released } = bench(1, 2)
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((id) => task(id)) as [Claimed, Claimed, Claimed, Claimed]
    scheduler.add([a, b, c])
    scheduler.putBack(d, -1)
    expect(released).toEqual(['c'])
    scheduler.pauseHere(true)
    scheduler.putBack(c, 2)
    expect(released).toEqual(['c', 'd', 'b', 'c'])
  })
})

describe('tasks from a lost node', () => {
  it('keep a slot while their mark is written', () => {
    const bed = bench(1, 1)
    const [first, second] = [task('p', { probation: true }), task('q')]
    bed.scheduler.add([first, second])
    expect(bed.marks).toBe(1)
    expect(bed.started).toEqual([])
    bed.scheduler.marked(bed.scheduler.marks())
    expect(bed.started).toEqual(['p'])
  })

  it('run one at a time if they had started, the next also after one is taken, given back or lost', () => {
    const bed = bench(4, 4)
    const { scheduler, started } = bed
    const solo = (id: string): Claimed => task(id, { reclaims: 1 })
    const all = ['a', 'b', 'c', 'd'].map(solo)
    scheduler.add(all)
    expect(scheduler.marks().map(({ id }) => id)).toEqual(['a'])
    scheduler.taken([{ id: 'a', token: all[0]?.token ?? 0, reason: 'cancelled' }])
    expect(scheduler.marks().map(({ id }) => id)).toEqual(['b'])
    scheduler.marked(scheduler.marks())
    expect(started).toEqual(['b'])
    expect(scheduler.marks()).toEqual([])
    bed.end('b')
    expect(scheduler.marks().map(({ id }) => id)).toEqual(['c'])
    scheduler.giveBack()
    expect(bed.released.sort()).toEqual(['c', 'd'])
    scheduler.add([solo('e')])
    scheduler.clear()
    scheduler.add([solo('f')])
    expect(scheduler.marks().map(({ id }) => id)).toEqual(['f'])
  })
})

describe('the fence', () => {
  it('keeps what is buffered from starting, and what was marked meanwhile too', () => {
    const bed = bench(2, 2)
    const { scheduler, started } = bed
    scheduler.add([task('p', { probation: true })])
    bed.fenced = true
    scheduler.add([task('a')])
    scheduler.marked(scheduler.marks())
    expect(started).toEqual([])
    bed.fenced = false
    scheduler.unfenced()
    scheduler.marked(scheduler.marks())
    expect(started).toEqual(['a', 'p'])
  })
})

describe('a notice', () => {
  it('drops a task only under a token that is not newer', () => {
    const { scheduler } = bench(1, 3)
    const [running, held, newer] = [task('r'), task('h'), task('n')]
    scheduler.add([running, held, newer])
    scheduler.taken([
      { id: 'h', token: held.token, reason: 'cancelled' },
      { id: 'n', token: newer.token - 1, reason: 'cancelled' },
    ])
    expect(scheduler.holding()).toEqual(['n'])
  })
})

describe('handlers that never wait', () => {
  it('leave the event loop its turn', async () => {
    const clock = new ManualClock()
    let ran = 0
    const scheduler = new QueueScheduler(new Prefetch({ size: 100, strategy: 'hybrid', interval: 100 }, 1), {
      clock,
      free: () => 1,
      fenced: () => false,
      run: () => {
        ran++
        clock.advance(4)
      },
      release: () => {},
      poke: () => {},
      mark: () => {},
    })
    scheduler.add(Array.from({ length: 20 }, (_, n) => task(`t${n}`)))
    expect(ran).toBeLessThan(5)
    await clock.settle()
    await clock.settle()
    expect(ran).toBe(20)
  })
})

describe('handlers that never wait', () => {
  it.each([
    [true, 50],
    [false, 120],
  ])('leave the turn to the next call where the storage works elsewhere: %s', async (isApart, share) => {
    const it = bench(200, 0, isApart)
    it.scheduler.add(Array.from({ length: 120 }, (_, n) => task(`t${n}`)))
    expect(it.started).toHaveLength(share)
    await it.clock.settle()
    await it.clock.settle()
    expect(it.started).toEqual(Array.from({ length: 120 }, (_, n) => `t${n}`))
  })
})
