/** What the compiler knows of schedules: the data of each task, and the type of its result. */
import { defineTask, TaskPool, type TaskId } from '@neotask/core'
import { expectTypeOf, test } from 'vitest'
import { TaskScheduler, type ScheduleId } from './index.js'

const mail = defineTask({ name: 'mail', handler: (data: { to: string }) => data.to.length })
const pool = new TaskPool({ executor: (n: number) => String(n), tasks: [mail], concurrency: 0 })
const scheduler = new TaskScheduler(pool)

test('the data is that of the executor, or of the definition', () => {
  expectTypeOf(scheduler).toEqualTypeOf<TaskScheduler<number, string>>()
  const submit = () => scheduler.submitInterval(1, '1s')
  expectTypeOf(submit).returns.resolves.toEqualTypeOf<ScheduleId<string>>()
  const cron = () =>
    scheduler.submitCron(mail, { to: 'ada' }, '@daily', { zone: 'Asia/Shanghai', overlap: 'skip' })
  expectTypeOf(cron).returns.resolves.toEqualTypeOf<ScheduleId<number>>()
  const later = () => scheduler.submitDelayed(mail, { to: 'ada' }, '5m', { priority: 1 })
  expectTypeOf(later).returns.resolves.toEqualTypeOf<TaskId<number>>()
  // @ts-expect-error: the executor takes numbers
  const text = () => scheduler.submitInterval('x', '1s')
  // @ts-expect-error: a mail has a receiver
  const sender = () => scheduler.submitCron(mail, { from: 'ada' }, '@daily')
  // @ts-expect-error: a text does not say in which zone it is meant
  const date = () => scheduler.submitAt(1, '2026-12-25')
  // @ts-expect-error: the delay is given already
  const twice = () => scheduler.submitDelayed(1, '1s', { delay: 5 })
  // @ts-expect-error: an interval has no zone
  const zone = () => scheduler.submitInterval(1, '1s', { zone: 'UTC' })
  for (const refused of [text, sender, date, twice, zone]) expectTypeOf(refused).toBeFunction()
})

test('what is changed or looked at fits together', () => {
  const update = () => scheduler.update('s', { data: 1, every: '1s', overlap: 'skip', end: undefined })
  const named = () => scheduler.update<{ to: string }>('s', { data: { to: 'ada' }, zone: 'UTC' })
  const preview = () => scheduler.preview({ expression: '@daily', zone: 'UTC' })
  expectTypeOf(preview).returns.resolves.toEqualTypeOf<Date[]>()
  // @ts-expect-error: the executor takes numbers
  const data = () => scheduler.update('s', { data: 'x' })
  // @ts-expect-error: an interval, or an expression
  const both = () => scheduler.update('s', { every: '1s', expression: '@daily' })
  // @ts-expect-error: an interval has no zone
  const zone = () => scheduler.update('s', { every: '1s', zone: 'UTC' })
  // @ts-expect-error: an interval, or an expression
  const previewBoth = () => scheduler.preview({ every: '1s', expression: '@daily' })
  // @ts-expect-error: an interval has no zone
  const previewZone = () => scheduler.preview({ every: '1s', zone: 'UTC' })
  for (const call of [update, named, data, both, zone, previewBoth, previewZone])
    expectTypeOf(call).toBeFunction()
})

test('tasks of a schedule have its type', () => {
  const trigger = (id: ScheduleId<number>) => scheduler.trigger(id)
  expectTypeOf(trigger).returns.resolves.toEqualTypeOf<TaskId<number>>()
  const fill = (id: ScheduleId<number>) => scheduler.backfill(id, 0, 1)
  expectTypeOf(fill).returns.resolves.toEqualTypeOf<TaskId<number>[]>()
  expectTypeOf<ScheduleId<number>>().toExtend<string>()
})
