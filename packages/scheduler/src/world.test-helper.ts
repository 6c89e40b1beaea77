/** Nodes on one memory storage whose time a test moves; each sees it through a connection of its own, which may fail. */
import { memoryStorage, TaskPool, type PoolEvents, type PoolOptions, type Storage } from '@neotask/core'
import { FlakyStorage, ManualClock } from '@neotask/core/testing'
import { TaskScheduler } from './task-scheduler.js'

export const REF = { tenant: 'default', queue: 'default' }
export const SECOND = 1000
export const MINUTE = 60_000
export const HOUR = 3_600_000

export interface Node {
  readonly clock: ManualClock
  readonly storage: FlakyStorage
  readonly pool: TaskPool<string, string>
  readonly scheduler: TaskScheduler<string, string>
  readonly errors: unknown[]
  /** Slots as this node's events tell them: `fired` or the reason, with the slot in ms after the world's beginning. */
  readonly told: (readonly [what: string, slot: number])[]
  /** It hears and does nothing more, like a process that was killed. */
  die(): void
}

interface NodeOptions extends Partial<Pick<PoolOptions, 'maxQueueSize' | 'overflow'>> {
  concurrency?: number
  /** Of the host. Default: that of the storage. */
  clock?: ManualClock
}

export class World {
  readonly start: number
  readonly clock: ManualClock
  readonly inner: Storage
  readonly nodes: Node[] = []
  /** Tasks whose handlers run, and how to end each. */
  readonly running = new Map<string, (result: string) => void>()
  /** Ids of the tasks in the order of their starts, with the ms after the beginning. */
  readonly ran: (readonly [id: string, at: number])[] = []
  /** Whether handlers wait until the test ends them. */
  holds = false

  constructor(start: number = Date.UTC(2026, 0, 1)) {
    this.start = start
    this.clock = new ManualClock({ now: start })
    this.inner = memoryStorage({ clock: this.clock })
  }

  node({ concurrency = 10, clock = this.clock, ...more }: NodeOptions = {}): Node {
    const storage = new FlakyStorage(this.inner, { clock: this.clock })
    const pool = new TaskPool<string, string>({
      storage,
      clock,
      concurrency,
      ...more,
      executor: async (data, ctx) => {
        this.ran.push([ctx.id, this.time])
        if (!this.holds) return data
        return await new Promise<string>((resolve, reject) => {
          this.running.set(ctx.id, resolve)
          ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason as Error))
        }).finally(() => this.running.delete(ctx.id))
      },
    })
    const errors: unknown[] = []
    const told: (readonly [string, number])[] = []
    pool.on('pool.error', ({ error }: PoolEvents['pool.error']) => errors.push(error))
    pool.on('schedule.fired', ({ slot }) => told.push(['fired', slot - this.start]))
    pool.on('schedule.skipped', ({ slot, reason }) => told.push([reason, slot - this.start]))
    const scheduler = new TaskScheduler(pool)
    const die = (): void => {
      storage.isDown = true
      storage.isDeaf = true
    }
    const node = { clock, storage, pool, scheduler, errors, told, die }
    this.nodes.push(node)
    return node
  }

  /** ms since the beginning. */
  get time(): number {
    return this.clock.now() - this.start
  }

  /** The instant so many ms after the beginning. */
  at(ms: number): number {
    return this.start + ms
  }

  /** Moves the storage's time, and that of all hosts. */
  async advance(ms: number): Promise<void> {
    await this.clock.advanceAsync(ms)
  }

  /** The slots of a schedule's history, oldest first, in ms after the beginning, each with how it went. */
  async history(node: Node, id: string): Promise<(readonly [slot: number, how: string])[]> {
    const slots = await node.scheduler.history(id)
    return slots
      .map(({ slot, reason, outcome, triggered }): readonly [number, string] => [
        slot.getTime() - this.start,
        reason ?? (triggered ? 'triggered' : (outcome ?? 'gone')),
      ])
      .reverse()
  }

  /** The slots that have tasks in the storage, in ms after the beginning. */
  async tasks(id: string): Promise<number[]> {
    const slots: number[] = []
    for (const state of [
      'pending',
      'scheduled',
      'blocked',
      'running',
      'success',
      'failed',
      'cancelled',
    ] as const) {
      const { tasks } = await this.inner.queue.list(REF, { state, limit: 500 })
      for (const task of tasks) {
        const [schedule, slot] = task.id.split('~')
        // Not those of a trigger, which have no slot.
        if (schedule === id && Number.isFinite(Number(slot))) slots.push(Number(slot) - this.start)
      }
    }
    return slots.sort((a, b) => a - b)
  }

  async close(): Promise<void> {
    for (const node of this.nodes) {
      node.storage.isDown = false
      const closed = node.pool.close({ timeout: 0 })
      await this.clock.advanceAsync(30 * SECOND)
      await closed
    }
    await this.inner.close()
  }
}
