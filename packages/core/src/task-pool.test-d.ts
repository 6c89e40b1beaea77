import { assertType, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import type { ClusterEvent } from './cluster-events.js'
import { defineTask } from './define-task.js'
import type { StreamedEvent } from './event-bus.js'
import type { StoredError } from './failure.js'
import type { PoolEvents } from './pool-events.js'
import { TaskPool, type TaskId } from './task-pool.js'

test('the executor types submit and waitForResult', async () => {
  const pool = new TaskPool({ executor: async (data: { url: string }) => data.url.length })
  const id = await pool.submit({ url: 'x' })
  expectTypeOf(await pool.waitForResult(id)).toEqualTypeOf<number>()
  expectTypeOf(await pool.run({ url: 'x' })).toEqualTypeOf<number>()
  expectTypeOf(await pool.waitForResult('an id from elsewhere')).toEqualTypeOf<number>()
  // @ts-expect-error the data does not fit
  await pool.submit({ uri: 'x' })
  // @ts-expect-error an unknown option
  await pool.submit({ url: 'x' }, { prio: 1 })
})

test('a handler in a file is typed by hand', async () => {
  const url = new URL('./hash.js', import.meta.url)
  const pool = new TaskPool<{ text: string }, number>({ executor: url })
  expectTypeOf(await pool.run({ text: 'x' })).toEqualTypeOf<number>()
  // @ts-expect-error the data does not fit
  await pool.run({ txt: 'x' })
  const hash = defineTask<{ text: string }, number>({ name: 'hash', handler: url.href })
  expectTypeOf(await pool.run(hash, { text: 'x' })).toEqualTypeOf<number>()
  const checked = defineTask({ name: 'checked', input: z.object({ text: z.string() }), handler: url })
  expectTypeOf(await pool.run(checked, { text: 'x' })).toEqualTypeOf<unknown>()
  // @ts-expect-error the data does not fit the schema
  await pool.run(checked, { text: 5 })
})

test('definitions type each kind', async () => {
  const mail = defineTask({
    name: 'mail',
    input: z.object({ to: z.string(), copies: z.number().default(1) }),
    handler: async (data) => {
      expectTypeOf(data).toEqualTypeOf<{ to: string; copies: number }>()
      return 'sent' as const
    },
  })
  const resize = defineTask({ name: 'resize', handler: (size: number) => ({ size }) })
  const pool = new TaskPool({ tasks: [mail, resize] })
  const sent = await pool.submit(mail, { to: 'a@b.org' })
  assertType<TaskId<'sent'>>(sent)
  expectTypeOf(await pool.waitForResult(sent)).toEqualTypeOf<'sent'>()
  expectTypeOf(await pool.run(resize, 5)).toEqualTypeOf<{ size: number }>()
  // @ts-expect-error the input does not fit
  await pool.submit(mail, { to: 5 })
  // @ts-expect-error the pool has no executor
  await pool.submit({ to: 'a@b.org' })
})

test('the scope types the events', async () => {
  const pool = new TaskPool({ executor: () => 1 })
  type Local = AsyncIterableIterator<StreamedEvent<PoolEvents>, undefined, undefined>
  expectTypeOf(pool.events()).toEqualTypeOf<Local>()
  expectTypeOf(pool.events({ scope: 'local', types: ['task.failed'] })).toEqualTypeOf<Local>()
  const stream = pool.events({ scope: 'cluster', capacity: 5 })
  expectTypeOf(stream).toEqualTypeOf<AsyncIterableIterator<ClusterEvent, undefined, undefined>>()
  const ended = pool.events({ scope: 'cluster', types: ['task.failed', 'task.completed'] })
  for await (const { type, event } of ended) {
    expectTypeOf(type).toEqualTypeOf<'task.failed' | 'task.completed'>()
    expectTypeOf(event.id).toEqualTypeOf<string>()
  }
  for await (const { type, event, node, at, dropped } of stream) {
    expectTypeOf(node).toEqualTypeOf<string>()
    expectTypeOf([at, dropped]).toEqualTypeOf<number[]>()
    if (type === 'task.created')
      expectTypeOf(event).toEqualTypeOf<{ readonly id: string; readonly name: string }>()
    if (type === 'task.completed') {
      expectTypeOf(event.duration).toEqualTypeOf<number>()
      // @ts-expect-error results stay where they are
      expectTypeOf(event.result).toBeUnknown()
    }
    if (type === 'task.failed') expectTypeOf(event.error).toEqualTypeOf<StoredError>()
    if (type === 'pool.error') expectTypeOf(event.error).toEqualTypeOf<StoredError>()
    if (type === 'task.progress') expectTypeOf(event.progress).toEqualTypeOf<unknown>()
    if (type === 'node.overloaded') expectTypeOf(event.measure).toEqualTypeOf<'eventLoopDelay' | 'memory'>()
  }
  // @ts-expect-error no such scope
  pool.events({ scope: 'all' })
  // @ts-expect-error no such type
  pool.events({ scope: 'cluster', types: ['task.ended'] })
})
