import { assertType, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import { defineTask } from './define-task.js'
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
