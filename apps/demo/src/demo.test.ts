/** The built program as a process of its own, the way somebody meets it. */
import { openStorage, type TaskRecord, type TaskState } from '@neotask/core'
import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, realpath, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { redisUrl } from '../../../tests/src/redis-server.js'
import type { Analysis } from './analyse.js'
import { currentQueue } from './place.js'

const program = join(import.meta.dirname, '..', 'dist', 'index.js')
let base: string
let tree: string
let url: string

beforeEach(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), 'neotask-demo-')))
  tree = join(base, 'tree')
  await mkdir(tree)
  url = `sqlite:${join(base, 'tasks.db')}`
})

afterEach(() => rm(base, { recursive: true }))

function start(args: readonly string[], { env = {} }: { env?: NodeJS.ProcessEnv } = {}) {
  const child = spawn(process.execPath, [program, ...args], {
    cwd: base,
    env: { ...process.env, npm_lifecycle_event: '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output.stderr += text))
  const ended = once(child, 'close').then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
    ...output,
  }))
  return { child, output, ended }
}

/** Runs the program to its end. */
const demo = (...args: string[]) => start(args).ended

/** Writes a tree of random text and says what each file is. */
async function plant(files: number, size: number): Promise<Map<string, string>> {
  const sums = new Map<string, string>()
  for (let n = 0; n < files; n++) {
    const path = `d${n % 7}/f${n}.txt`
    const content = randomBytes(size / 2).toString('hex')
    await mkdir(join(tree, `d${n % 7}`), { recursive: true })
    await writeFile(join(tree, path), content)
    sums.set(path, createHash('sha256').update(content).digest('hex'))
  }
  return sums
}

/** A file that takes a while and no room. */
async function plantLarge(name: string, size: number): Promise<void> {
  await writeFile(join(tree, name), '')
  await truncate(join(tree, name), size)
}

/** Looks into the storage from this process, while the program runs or afterwards. */
async function peek() {
  const storage = await openStorage(url)
  const ref = { tenant: 'default', queue: await currentQueue(storage, tree) }
  return {
    counts: () => storage.queue.counts(ref),
    async records(state: TaskState): Promise<TaskRecord[]> {
      const records: TaskRecord[] = []
      let cursor: string | undefined
      do {
        const page = await storage.queue.list(ref, { state, limit: 500, cursor })
        records.push(...page.tasks)
        cursor = page.cursor
      } while (cursor !== undefined)
      return records
    },
    close: () => storage.close(),
  }
}

const pathOf = ({ payload }: TaskRecord) => (JSON.parse(String(payload)) as { path: string }).path
const sumOf = ({ result }: TaskRecord) => (JSON.parse(String(result)) as Analysis).sha256

async function until(what: string, condition: () => boolean | Promise<boolean>, ms = 20_000): Promise<void> {
  const end = performance.now() + ms
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

describe('a whole run', { timeout: 30_000 }, () => {
  it('computes every file right, reports it, and finds all of it finished the next time', async () => {
    const sums = await plant(60, 2000)
    await writeFile(join(tree, 'words.md'), 'one two\nthree')
    const first = await demo(tree, '--storage', url)
    expect(first).toMatchObject({ code: 0 })
    expect(first.stdout).toContain('61 files')
    expect(first.stdout).toMatch(/\.md +1 +13 B +2 +3 /)
    expect(first.stdout).toMatch(/total +61 +120\.0 kB +62 +63 /)
    expect(first.stdout).toMatch(
      /submitted +completed +failed +retried +throughput\n +tasks +61 +61 +0 +0 +\d+\/s/,
    )
    expect(first.stdout).toMatch(/wait +\d.*ms +\d/)
    expect(first.stdout).toMatch(/run +\d.*ms +\d/)
    const storage = await peek()
    const records = await storage.records('success')
    await storage.close()
    expect(
      new Map(records.filter((record) => pathOf(record) !== 'words.md').map((r) => [pathOf(r), sumOf(r)])),
    ).toEqual(sums)

    const second = await demo(tree, '--storage', url)
    expect(second).toMatchObject({ code: 0, stderr: '' })
    expect(second.stdout).toContain('All of them were finished before; --fresh starts over.')
    expect(second.stdout).toMatch(/total +61 +120\.0 kB +62 +63 /)

    const fresh = await demo(tree, '--storage', url, '--fresh')
    expect(fresh.stdout).toMatch(/tasks +61 +61 +0 +0 /)
    const after = await peek()
    expect(
      (await after.records('success')).every(
        (record) => !records.some(({ since }) => since === record.since),
      ),
    ).toBe(true)
    await after.close()
  })

  it('reads again what has changed, and only that', async () => {
    await plant(20, 100)
    await demo(tree, '--storage', url)
    await writeFile(join(tree, 'd1', 'f1.txt'), 'changed')
    await writeFile(join(tree, 'new'), 'new')
    await rm(join(tree, 'd2', 'f2.txt'))
    const { code, stdout } = await demo(tree, '--storage', url)
    expect(code).toBe(0)
    expect(stdout).toContain('18 were finished before, 2 are left')
    expect(stdout).toMatch(/tasks +2 +2 +0 /)
    expect(stdout).toMatch(/total +20 /)
  })

  it('lists what could not be read, and why, also the next time', async () => {
    await plantLarge('a-first', 100_000_000)
    for (const name of ['b-gone', 'c-folder', 'd-link', 'e-fine']) await writeFile(join(tree, name), 'x')
    const { output, ended } = start([tree, '--storage', url, '--concurrency', '1'])
    // Found, and not read yet: the first file takes a while.
    await until('the files are found', () => output.stdout.includes('5 files'))
    await rm(join(tree, 'b-gone'))
    await rm(join(tree, 'c-folder'))
    await mkdir(join(tree, 'c-folder'))
    await rm(join(tree, 'd-link'))
    await symlink('e-fine', join(tree, 'd-link'))
    const { code, stdout } = await ended
    expect(code).toBe(0)
    expect(stdout).toContain('Could not be read: 3\n')
    expect(stdout).toContain('b-gone   ENOENT: it vanished before it was read\n')
    expect(stdout).toContain('c-folder   EISDIR: it is a folder now\n')
    expect(stdout).toContain('d-link   ELOOP: it is a symbolic link now\n')
    expect(stdout).toMatch(/tasks +5 +2 +3 +0 /)

    await rm(join(tree, 'c-folder'), { recursive: true })
    const storage = await peek()
    expect((await storage.records('failed')).map(({ attempts }) => attempts)).toEqual([1, 1, 1])
    await storage.close()
  })

  it('works in memory, and on nothing', async () => {
    expect(await demo(tree, '--storage', 'memory:')).toMatchObject({ code: 0, stderr: '' })
    await plant(3, 10)
    const { code, stdout } = await demo(tree, '--storage', 'memory:')
    expect(code).toBe(0)
    expect(stdout).toMatch(/tasks +3 +3 +0 /)
    expect(await readdir(base)).toEqual(['tree'])
  })

  it('leaves its own database out when that is in the folder', async () => {
    await plant(3, 10)
    const inside = `sqlite:${join(tree, 'tasks.db')}`
    expect((await demo(tree, '--storage', inside)).stdout).toContain('3 files')
    expect((await demo(tree, '--storage', inside)).stdout).toContain('All of them were finished before')
  })

  it.skipIf(process.platform !== 'linux')('finds its default storage again', async () => {
    await plant(3, 10)
    const env = { XDG_CACHE_HOME: join(base, 'cache') }
    expect((await start([tree], { env }).ended).stdout).toContain(`sqlite:${join(base, 'cache')}`)
    expect((await start(['tree'], { env }).ended).stdout).toContain('All of them were finished before')
  })

  it('writes plain lines, about one a second, when it is not on a terminal', async () => {
    await plant(50, 1000)
    await plantLarge('large', 100_000_000)
    const begin = performance.now()
    const { stderr } = await demo(tree, '--storage', 'memory:', '--concurrency', '2')
    const seconds = (performance.now() - begin) / 1000
    const lines = stderr.trimEnd().split('\n')
    expect(lines.length).toBeLessThanOrEqual(seconds + 1)
    expect(lines.at(-1)).toMatch(/^51 of 51 files, 100 %, /)
    for (const line of lines) expect(line).toMatch(/^[\x20-\x7e]+$/)
  })
})

describe('on Redis', { timeout: 60_000 }, () => {
  beforeEach(async () => {
    url = await redisUrl()
  })

  it('computes every file right, and finds all of it finished the next time', async () => {
    const sums = await plant(60, 2000)
    const first = await demo(tree, '--redis', url)
    expect(first).toMatchObject({ code: 0 })
    expect(first.stdout).toContain(`The tasks are in ${url}\n`)
    expect(first.stdout).toMatch(/tasks +60 +60 +0 +0 /)
    const storage = await peek()
    const records = await storage.records('success')
    await storage.close()
    expect(new Map(records.map((record) => [pathOf(record), sumOf(record)]))).toEqual(sums)

    const second = await demo(tree, '--redis', url)
    expect(second).toMatchObject({ code: 0, stderr: '' })
    expect(second.stdout).toContain('All of them were finished before; --fresh starts over.')
    expect((await demo(tree, '--redis', url, '--fresh')).stdout).toMatch(/tasks +60 +60 +0 +0 /)
    expect(await readdir(base)).toEqual(['tree'])
  })

  it('shares the work between two processes, and goes on when one of them is killed', async () => {
    const sums = await plant(400, 60_000)
    const args = [tree, '--redis', url, '--concurrency', '4']
    const killed = start(args)
    const storage = await peek()
    const finished = (count: number) => async () => (await storage.counts()).success >= count
    await until('one has finished some', finished(20))
    // However long the other one takes to start, there is something left for it.
    killed.child.kill('SIGSTOP')
    const first = (await storage.counts()).success
    const other = start(args)
    await until('the other one has finished some', finished(first + 20))
    killed.child.kill('SIGKILL')
    expect(await killed.ended).toMatchObject({ signal: 'SIGKILL' })
    const before = (await storage.records('success')).length
    expect(before).toBeLessThan(400)

    const { code, stdout } = await other.ended
    expect(code).toBe(0)
    expect(stdout).toMatch(/total +400 |\.txt +400 /)
    // It has not done all of them itself.
    expect(Number(/tasks +[\d,]+ +([\d,]+)/.exec(stdout)?.[1])).toBeLessThan(400)
    const after = await storage.records('success')
    expect(await storage.counts()).toMatchObject({ success: 400, failed: 0, pending: 0, running: 0 })
    await storage.close()
    expect(new Map(after.map((record) => [pathOf(record), sumOf(record)]))).toEqual(sums)
    expect(after.every(({ attempts }) => attempts === 1)).toBe(true)
  })

  it('shows no password, and says in one line that no server is there', async () => {
    const { code, stdout, stderr } = await demo(tree, '--redis', 'redis://ada:secret@127.0.0.1:1')
    expect(code).toBe(1)
    expect(stderr).toMatch(/^demo: Redis: /)
    expect(stderr.trimEnd().split('\n')).toHaveLength(1)
    expect(stdout + stderr).not.toContain('secret')
  })
})

describe('bad arguments', () => {
  it.each([
    [['--nonsense'], "unknown option '--nonsense'"],
    [['file'], 'file is a file, not a folder'],
  ])('%j: one line and exit code 2', async (args, words) => {
    await writeFile(join(base, 'file'), '')
    const { code, stdout, stderr } = await demo(...args)
    expect(code).toBe(2)
    expect(stdout).toBe('')
    expect(stderr).toContain(words)
    expect(stderr.trimEnd().split('\n')).toHaveLength(1)
    expect(await readdir(base)).toEqual(['file', 'tree'])
  })

  it('--help explains and does nothing', async () => {
    const { code, stdout } = await demo('--help')
    expect(code).toBe(0)
    expect(stdout).toContain('--concurrency <n>')
    expect(await readdir(base)).toEqual(['tree'])
  })

  it('a storage that is something else: one line, and the file is left alone', async () => {
    await writeFile(join(base, 'notes.txt'), 'not a database, '.repeat(100))
    const { code, stderr } = await demo(tree, '--storage', 'sqlite:notes.txt')
    expect(code).toBe(1)
    expect(stderr.trimEnd().split('\n')).toHaveLength(1)
    expect(await readdir(base)).toEqual(['notes.txt', 'tree'])
  })
})

describe('stopped in the middle', { timeout: 60_000 }, () => {
  it('by kill -9: goes on, repeats nothing that had finished, and runs what was held within 7 s', async () => {
    const sums = await plant(400, 60_000)
    const killed = start([tree, '--storage', url, '--concurrency', '4'])
    const storage = await peek()
    await until('some are finished', async () => (await storage.counts()).success >= 40)
    killed.child.kill('SIGKILL')
    expect(await killed.ended).toMatchObject({ signal: 'SIGKILL' })
    const before = await storage.records('success')
    const held = (await storage.records('running')).map(({ id }) => id)
    expect(before.length).toBeLessThan(400)
    expect(held.length).toBeGreaterThan(0)

    const restart = Date.now()
    const { code, stdout } = await demo(tree, '--storage', url, '--concurrency', '4')
    expect(code).toBe(0)
    expect(stdout).toContain(`${before.length} were finished before, ${400 - before.length} are left`)
    expect(stdout).toContain(`${held.length} are held by a process that may be gone`)
    const after = await storage.records('success')
    const counts = await storage.counts()
    await storage.close()

    // Each once: one task for each file, one attempt that ended, and the right result.
    expect(counts).toMatchObject({
      success: 400,
      failed: 0,
      pending: 0,
      scheduled: 0,
      running: 0,
      cancelled: 0,
    })
    expect(new Map(after.map((record) => [pathOf(record), sumOf(record)]))).toEqual(sums)
    expect(after.every(({ attempts }) => attempts === 1)).toBe(true)
    // What had finished was not touched again.
    const since = new Map(after.map((record) => [record.id, record.since]))
    for (const record of before) expect(since.get(record.id)).toBe(record.since)
    expect(stdout).toMatch(new RegExp(`tasks +\\d+ +${400 - before.length} +0 `))
    for (const id of held) expect(since.get(id)! - restart).toBeLessThan(7000)
  })

  it('by Ctrl-C: ends what it is at, says how to go on, and goes on', async () => {
    await plant(400, 60_000)
    const stopped = start([tree, '--storage', url, '--concurrency', '4'])
    const storage = await peek()
    await until('some are finished', async () => (await storage.counts()).success >= 40)
    stopped.child.kill('SIGINT')
    const { code, stderr } = await stopped.ended
    expect(code).toBe(130)
    expect(stderr).toContain('Stopped. The same command goes on from here.')
    const { success, running } = await storage.counts()
    // Nothing is left in the hands of a process that is gone.
    expect(running).toBe(0)
    expect(success).toBeLessThan(400)
    const { stdout } = await demo(tree, '--storage', url)
    expect(stdout).toContain(`${success} were finished before`)
    expect(stdout).not.toContain('held')
    expect(await storage.counts()).toMatchObject({ success: 400, failed: 0 })
    await storage.close()
  })

  it('by Ctrl-C twice: at once, whatever it is at', async () => {
    await plantLarge('endless', 50_000_000_000)
    const { child, ended, output } = start([tree, '--storage', url])
    const storage = await peek()
    await until('it is at work', async () => (await storage.counts()).running === 1)
    const begin = performance.now()
    child.kill('SIGINT')
    await new Promise((resolve) => setTimeout(resolve, 300))
    child.kill('SIGINT')
    expect(await ended).toMatchObject({ code: 130 })
    expect(performance.now() - begin).toBeLessThan(3000)
    expect(output.stdout).not.toContain('The pool')
    await storage.close()
  })
})

describe('--every', () => {
  it('looks again and again, and goes on with the same slots when it is started again', async () => {
    await plant(3, 100)
    const looks = (text: string): string[] => text.match(/^\d\d:\d\d:\d\d {2}\d+ files.*$/gm) ?? []
    const run = async (atLeast: number): Promise<string> => {
      const { child, output, ended } = start([tree, '--storage', url, '--every', '1s'])
      await vi.waitFor(() => expect(looks(output.stdout).length).toBeGreaterThanOrEqual(atLeast), {
        timeout: 20_000,
      })
      child.kill('SIGINT')
      const { code, stdout, stderr } = await ended
      expect([code, stderr]).toEqual([130, 'Stopped. The same command goes on with the same slots.\n'])
      return stdout
    }
    const first = await run(2)
    expect(first).toContain('The next look is at')
    expect(looks(first)[1]).toMatch(/3 files, .*, as before$/)
    await writeFile(join(tree, 'new.txt'), 'x')
    const second = await run(1)
    expect(second).toMatch(/The schedule is there since \d\d:\d\d:\d\d, with [2-9] looks/)
    expect(looks(second)[0]).toContain('4 files')
  })
})
