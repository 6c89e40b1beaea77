/** One thread by itself: what it takes up, what can be taken back, and what is told when it dies or does not. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { resolveThreads, type ThreadOptions } from './thread-options.js'
import { WorkerThread, type Attempt } from './worker-thread.js'

const HANDLER = `
  import { execFileSync } from 'node:child_process'
  import { fileURLToPath } from 'node:url'
  const [release, blocked] = ['release', 'blocked'].map((name) => fileURLToPath(new URL(name, import.meta.url)))
  let ran = 0
  export default async function (job, ctx) {
    ran++
    if (job === 'wait') ctx.progress('waiting')
    if (job === 'exit') process.exit(4)
    if (job === 'exit soon') setImmediate(() => process.exit(5))
    if (job === 'spin') for (;;);
    if (job === 'block') execFileSync('sh', ['-c', ': > "$2"; until [ -e "$1" ]; do sleep 0.05; done', 'sh', release, blocked])
    if (job === 'wait') await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
    return ran
  }`

let folder: string
let file: string
const threads: WorkerThread[] = []

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'neotask-thread-'))
  writeFileSync(join(folder, 'handler.mjs'), HANDLER)
  file = pathToFileURL(join(folder, 'handler.mjs')).href
})

afterEach(() => {
  for (const thread of threads.splice(0)) thread.end()
})

afterAll(() => rmSync(folder, { recursive: true }))

interface Bench {
  readonly thread: WorkerThread
  /** What was told, in order: `started a`, `a 1` for a result, `refused a`, `failed a`, `stuck a`. */
  readonly told: string[]
  readonly deaths: (string | undefined)[]
  /** @param mayWait whether it is sent in the next turn of the loop only */
  give(name: string, job?: string, mayWait?: boolean): Attempt
  /** Resolves when this was told. */
  heard(what: string): Promise<void>
}

function bench(options: ThreadOptions = {}): Bench {
  const told: string[] = []
  const deaths: (string | undefined)[] = []
  const thread = new WorkerThread({
    policy: resolveThreads(options),
    ref: { tenant: 'default', queue: 'default' },
    codec: 'json',
    maxPayload: 1000,
    recalled: () => told.push('recalled'),
    gone: (_, error) => deaths.push(error?.message),
  })
  threads.push(thread)
  const give = (name: string, job = '', mayWait = false): Attempt => {
    const attempt: Attempt = {
      reached: () => {},
      started: () => told.push(`started ${name}`),
      reported: (progress) => told.push(`${name} says ${String(progress)}`),
      checkpoint: async () => {},
      succeeded: (result) => told.push(`${name} ${String(result)}`),
      failed: () => told.push(`failed ${name}`),
      refused: () => told.push(`refused ${name}`),
      stuck: () => told.push(`stuck ${name}`),
    }
    const { nextTicket } = thread
    const payload = JSON.stringify(job)
    const message = [nextTicket, file, name, '', 1, 0, payload, undefined, undefined, undefined] as const
    thread.run(attempt, message, undefined, mayWait)
    return attempt
  }
  const heard = (what: string): Promise<void> => expect.poll(() => told, { timeout: 10_000 }).toContain(what)
  return { thread, told, deaths, give, heard }
}

describe('attempts that are given ahead', () => {
  it('run one after the other, in their order', async () => {
    const { told, give, heard } = bench()
    for (const name of ['a', 'b', 'c']) give(name)
    await heard('c 3')
    expect(told).toEqual(['started a', 'started b', 'a 1', 'started c', 'b 2', 'c 3'])
  })

  it('are taken back unless they were taken up, and then never run', async () => {
    const { thread, told, give, heard } = bench()
    const first = give('a', 'wait')
    await heard('started a')
    give('b')
    give('c')
    thread.recall()
    expect(told.filter((what) => what.startsWith('refused'))).toEqual(['refused b', 'refused c'])
    expect(thread.load).toBe(1)
    give('d')
    thread.abort(first, 'cancelled')
    expect(told.slice(-2)).toEqual(['refused d', 'recalled'])
    await heard('a 1')
    give('e')
    // The second that ran, although five were given.
    await heard('e 2')
  })

  it('have started when the thread took them up, and not before', async () => {
    const { thread, told, give, heard } = bench()
    give('a')
    await heard('a 1')
    told.length = 0
    give('b', '', true)
    give('c', '', true)
    thread.recall()
    expect(told).toEqual(['refused b', 'refused c', 'recalled'])
    give('b', '', true)
    give('c', '', true)
    await heard('c 3')
    expect(told.slice(3)).toEqual(['started b', 'started c', 'b 2', 'c 3'])
  })

  it('are taken back when the one before them is there at two looks', async () => {
    const { thread, told, give, heard } = bench()
    give('a', 'wait')
    await heard('a says "waiting"')
    give('b')
    expect(thread.look()).toBe(true)
    expect(told).not.toContain('refused b')
    expect(thread.look()).toBe(false)
    expect(told.slice(-2)).toEqual(['refused b', 'recalled'])
    expect(thread.isOpen).toBe(false)
  })

  it('are refused one by one, and leave the others as they are', async () => {
    const { thread, told, give, heard } = bench()
    give('a')
    await heard('a 1')
    const attempts = ['b', 'c', 'd'].map((name) => give(name, 'wait'))
    await heard('b says "waiting"')
    thread.abort(attempts[1] as Attempt, 'cancelled')
    expect(told.slice(-3)).toEqual(['refused c', 'refused d', 'recalled'])
    expect(thread.load).toBe(1)
  })
})

describe('a thread that dies', () => {
  it('fails what it had taken up, and nothing else', async () => {
    const { told, deaths, give, heard } = bench()
    give('a')
    await heard('a 1')
    give('b', 'exit')
    give('c')
    await heard('failed b')
    expect(told.slice(2).sort()).toEqual(['failed b', 'recalled', 'refused c', 'started b'])
    expect(deaths).toEqual([undefined])
  })

  it('between two attempts says so', async () => {
    const { deaths, give, heard } = bench()
    give('a', 'exit soon')
    await heard('a 1')
    await expect
      .poll(() => deaths)
      .toEqual(['the thread of the handler ended: process.exit(5) was called in it'])
  })

  it('before it ever ran fails what it was given, so that nobody tries for ever', async () => {
    const { told, give, heard } = bench({ startTimeout: 1 })
    give('a')
    await heard('failed a')
    expect(told).toEqual(['failed a'])
  })
})

describe('a thread that is to end', () => {
  it('is stopped after the grace when its handler goes on', async () => {
    const { thread, told, give, heard } = bench({ grace: 20 })
    const attempt = give('a', 'spin')
    await heard('started a')
    thread.abort(attempt, 'timeout')
    expect(thread.isOpen).toBe(false)
    await heard('failed a')
    expect(told).toEqual(['started a', 'failed a'])
  })

  it('is given up for the time being when it cannot be stopped', async () => {
    const { thread, told, give, heard } = bench({ grace: 0 })
    const attempt = give('a', 'block')
    // Before it is in there, an abort still ends it.
    await vi.waitFor(() => expect(existsSync(join(folder, 'blocked'))).toBe(true), 10_000)
    try {
      thread.abort(attempt, 'timeout')
      await heard('stuck a')
    } finally {
      // It blocks for as long as nobody lets it go, however slow the machine.
      writeFileSync(join(folder, 'release'), '')
    }
    await heard('failed a')
    expect(told).toEqual(['started a', 'stuck a', 'failed a'])
  })
})
