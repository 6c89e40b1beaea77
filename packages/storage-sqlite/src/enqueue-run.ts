/**
 * The quick way of plain tasks: sixteen rows with one statement, which costs a third less than one by one.
 *
 * Plain is a single task with a generated id and no option that needs another table. A known id is passed over by
 * the statement; that it happened shows in the count of rows, and to whom in the score, which no other task has.
 */
import {
  isGeneratedId,
  type EnqueueOptions,
  type EnqueueOutcome,
  type NewTask,
  type Unit,
} from '@neotask/core'
import { checkTask, isPlain } from './enqueue.js'
import { BLOCKED, LARGE, PENDING, SCHEDULED } from './layout.js'
import { EVENT, type Step } from './step.js'

/** Rows of one statement. */
const RUN = 16

const ROW = '(?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)'
const INSERT = `INSERT INTO neotask_tasks (q, id, place, rank, score, since, created, flags, kind, codec, payload, options)
  VALUES ${Array<string>(RUN).fill(ROW).join(', ')} ON CONFLICT (q, id) DO NOTHING`

/** The next units, when they are just right for {@link enqueueRun}. */
export function plainRun(
  step: Step,
  units: readonly Unit[],
  from: number,
  options: EnqueueOptions,
): NewTask[] | undefined {
  if (from + RUN > units.length) return undefined
  const [pending = 0, scheduled = 0, blocked = 0] = [
    step.counts[PENDING],
    step.counts[SCHEDULED],
    step.counts[BLOCKED],
  ]
  if (pending + scheduled + blocked + RUN > (options.maxQueueSize ?? Infinity)) return undefined
  const run: NewTask[] = []
  for (let index = from; index < from + RUN; index++) {
    const unit = units[index] as Unit
    if (Array.isArray(unit)) return undefined
    const task = unit as NewTask
    if (!isPlain(task) || checkTask(task) || !isGeneratedId(task.id) || task.payload.length > LARGE)
      return undefined
    run.push(task)
  }
  return run
}

export function enqueueRun(step: Step, run: readonly NewTask[]): EnqueueOutcome[] {
  const { db, q, now } = step
  const place = step.place(PENDING)
  const scores: number[] = []
  const values: unknown[] = []
  for (const { id, kind, codec, payload, options, priority } of run) {
    const score = step.nextScore(priority)
    scores.push(score)
    values.push(q, id, place, score, score, now, now, kind, codec, payload, options ?? null)
  }
  const { changes } = db.statement(INSERT).run(...values)
  step.shift(undefined, PENDING, changes)
  if (changes > 0) step.count(EVENT.enqueued, changes)
  const rows = changes < run.length ? step.rows(run.map((task) => task.id)) : undefined
  return run.map(({ id, kind }, index) => {
    const score = scores[index] as number
    if (rows && rows.get(id)?.score !== score) return 'repeated'
    step.effects.ready(kind, score)
    return 'accepted'
  })
}
