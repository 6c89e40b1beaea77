/** The handler of `threads.test.ts`, as a file that runs in threads: does what its data say. */
import {
  AbortReason,
  NonRetryableError,
  RetryLaterError,
  ValidationError,
  type TaskContext,
} from '@neotask/core'
import { writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { threadId } from 'node:worker_threads'

export type Job =
  | { do: 'echo'; value?: unknown }
  | { do: 'who' }
  | { do: 'attempt' }
  | { do: 'about' }
  | { do: 'compute'; ms: number }
  | { do: 'spin'; file?: string }
  | { do: 'spin politely' }
  | { do: 'sleep'; ms: number }
  | { do: 'exit'; code?: number }
  | { do: 'throw later' }
  | { do: 'fill memory' }
  | { do: 'report' }
  | { do: 'report in a loop'; times: number }
  | { do: 'fail'; how: 'plainly' | 'for ever' | 'until later' | 'invalidly' | 'with a word' }
  | { do: 'return a function' }
  | { do: 'report for ever' }
  | { do: 'answer the abort' }

class TooHot extends NonRetryableError {}

const WORD: unknown = 'a word'
let failed = false

export default async function handler(job: Job, ctx: TaskContext): Promise<unknown> {
  switch (job.do) {
    case 'echo':
      return job.value
    case 'who':
      return threadId
    case 'attempt':
      return ctx.attempt
    case 'about': {
      const { id, name, attempt, token, queue, tenant, parents, timedOut } = ctx
      return { id, name, attempt, isToken: token > 0, queue, tenant, parents, timedOut }
    }
    case 'compute':
      compute(job.ms)
      return threadId
    case 'spin':
      for (let n = 0; ; n++) if (job.file !== undefined && n % 100_000 === 0) writeFileSync(job.file, `${n}`)
    case 'spin politely':
      while (!ctx.signal.aborted);
      throw ctx.signal.reason
    case 'sleep':
      await sleep(job.ms, undefined, { signal: ctx.signal })
      return threadId
    case 'exit':
      return process.exit(job.code ?? 0)
    case 'throw later':
      setImmediate(() => {
        throw new TypeError('nobody catches this')
      })
      return new Promise(() => {})
    case 'fill memory': {
      const kept: object[] = []
      for (;;) kept.push({ n: kept.length })
    }
    case 'report':
      if (ctx.attempt > 1) return ctx.state
      ctx.progress('half')
      ctx.log('said', { n: 1 })
      await ctx.checkpoint({ page: 7 })
      ctx.progress('nearly')
      ctx.log('said last')
      throw new Error('once')
    case 'report in a loop':
      for (let n = 1; n <= job.times; n++) {
        ctx.progress(n)
        ctx.log(`line ${n}`)
      }
      return 'done'
    case 'fail':
      return fail(job.how)
    case 'return a function':
      return () => {}
    case 'report for ever':
      setInterval(() => {
        ctx.progress('from the grave')
        ctx.checkpoint('from the grave').catch(() => {})
      }, 1)
      return 'reported'
    case 'answer the abort':
      ctx.progress('listening')
      await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      await ctx.checkpoint(ctx.signal.reason instanceof AbortReason ? ctx.signal.reason.kind : 'a stranger')
      return 'ended by itself'
  }
}

function compute(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end) Math.hypot(end, ms)
}

function fail(how: (Job & { do: 'fail' })['how']): string | Promise<never> {
  switch (how) {
    case 'plainly':
      throw Object.assign(new RangeError('too far', { cause: new Error('the wind') }), { code: 'FAR' })
    case 'for ever':
      throw new TooHot('no use')
    case 'until later':
      if (failed) return 'later'
      failed = true
      throw new RetryLaterError('5ms', 'busy')
    case 'invalidly':
      throw new ValidationError('VALIDATION_FAILED', 'not like this')
    case 'with a word':
      return Promise.reject(WORD)
  }
}
