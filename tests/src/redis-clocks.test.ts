/** Two processes whose clocks differ by an hour share a Redis server: all that matters goes by the server's clock. */
import { TaskPool } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, expect, test } from 'vitest'
import type { Ran, Word } from './clock-worker.js'
import { redisUrl } from './redis-server.js'
import { until } from './storages.js'

const HOUR = 3_600_000
/** ms by which the submitted tasks are delayed. */
const DELAY = 1_500
const program = join(import.meta.dirname, '..', 'dist', 'clock-worker.js')

const disposals: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const dispose of disposals.splice(0).reverse()) await dispose()
})

interface Node {
  readonly pid: number | undefined
  readonly words: Word[]
  submit(): void
}

/** @param ahead ms by which it believes the time to be later than it is */
function startNode(ahead: number, args: readonly string[]): Node {
  const shift = `const now = Date.now; Date.now = () => now() + ${ahead}`
  const preload = ['--import', `data:text/javascript,${encodeURIComponent(shift)}`]
  const child = spawn(process.execPath, [...preload, program, ...args, String(DELAY)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const words: Word[] = []
  createInterface({ input: child.stdout }).on('line', (line) => words.push(JSON.parse(line) as Word))
  disposals.push(async () => {
    const ended = once(child, 'exit')
    if (child.exitCode === null && child.kill('SIGKILL')) await ended
  })
  return { pid: child.pid, words, submit: () => child.stdin.write('submit\n') }
}

const wordsOf = <Type extends Word['type']>(node: Node, type: Type): Extract<Word, { type: Type }>[] =>
  node.words.filter((word): word is Extract<Word, { type: Type }> => word.type === type)

test('delayed tasks start on time and no session is lost, wherever the clock of a process stands', async () => {
  const url = await redisUrl()
  const namespace = `test-${randomBytes(6).toString('hex')}`
  const storage = redisStorage({ url, namespace })
  await storage.open()
  disposals.push(() => storage.close())
  const right = startNode(0, [url, namespace, 'right', 'ahead'])
  const ahead = startNode(HOUR, [url, namespace, 'ahead', 'right'])
  await until(
    'both are ready',
    () => [right, ahead].every((node) => wordsOf(node, 'ready').length > 0),
    20_000,
  )
  const [ofRight, ofAhead] = [right, ahead].map((node) => wordsOf(node, 'ready')[0]?.now ?? 0)
  expect((ofAhead ?? 0) - (ofRight ?? 0)).toBeGreaterThan(HOUR - 60_000)
  expect(wordsOf(right, 'warning')).toEqual([])
  expect(wordsOf(ahead, 'warning')).toEqual([{ type: 'warning', code: 'NEOTASK_REDIS_CLOCK' }])

  const queues = new Map(
    [
      ['right', right.pid],
      ['ahead', ahead.pid],
    ].map(([queue, pid]) => {
      const pool = new TaskPool<string, Ran>({ storage, queue: String(queue), concurrency: 0 })
      disposals.push(() => pool.close())
      return [String(queue), { pool, pid }] as const
    }),
  )
  const nodes = async (): Promise<unknown> => {
    const lists = [...queues.values()].map(({ pool }) => pool.getNodes())
    return (await Promise.all(lists)).flat().map(({ queue, session }) => ({ queue, session }))
  }
  const sessions = await nodes()
  expect(sessions).toHaveLength(2)
  const long = Promise.all([...queues.values()].map(({ pool }) => pool.run('long')))
  long.catch(() => undefined)

  for (const node of [right, ahead]) node.submit()
  const submitted = (): Extract<Word, { type: 'submitted' }>[] =>
    [right, ahead].flatMap((node) => wordsOf(node, 'submitted'))
  await until('all are submitted', () => submitted().length === 4)
  const late: number[] = []
  for (const { queue, id, before, after } of submitted()) {
    const { pool, pid } = queues.get(queue) as { pool: TaskPool<string, Ran>; pid: number | undefined }
    const ran = await pool.waitForResult<Ran>(id, { timeout: '10s' })
    expect(ran.pid).toBe(pid)
    // The server counts in whole ms.
    expect(ran.at - before).toBeGreaterThanOrEqual(DELAY - 1)
    late.push(ran.at - after - DELAY)
  }
  expect(Math.max(...late)).toBeLessThan(1_000)

  const pids = [right.pid, ahead.pid]
  expect(await long).toEqual(
    pids.map((pid) => ({ at: expect.any(Number) as number, pid, times: 1, aborted: false })),
  )
  expect(await nodes()).toEqual(sessions)
  console.log(`an hour apart: started ${late.map((ms) => ms.toFixed(1)).join(', ')} ms after they were due`)
})
