import { mkdtemp, realpath, rm, symlink, writeFile, mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readArguments, UsageError } from './arguments.js'

let base: string
const read = (...args: string[]) => readArguments(args, { base, defaultFolder: base })

beforeAll(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), 'neotask-demo-')))
  await mkdir(join(base, 'folder'))
  await writeFile(join(base, 'file'), '')
  await symlink('folder', join(base, 'link'))
})

afterAll(() => rm(base, { recursive: true }))

describe('what is taken', () => {
  it('needs nothing', async () => {
    expect(await read()).toMatchObject({ folder: base, storage: undefined, fresh: false })
  })

  it('takes a folder relative to where it was called, and finds its real path', async () => {
    expect(await read('folder')).toMatchObject({ folder: join(base, 'folder') })
    expect(await read('link', '--concurrency=3', '--fresh')).toMatchObject({
      folder: join(base, 'folder'),
      concurrency: 3,
      fresh: true,
    })
  })

  it('makes the path of the storage absolute', async () => {
    expect(await read('--storage', 'sqlite:./a.db')).toMatchObject({
      storage: `sqlite:${join(base, 'a.db')}`,
    })
    const absolute = join(base, 'folder', 'a.db')
    expect(await read('--storage', `sqlite://${absolute}`)).toMatchObject({ storage: `sqlite:${absolute}` })
    expect(await read('--storage', 'memory:')).toMatchObject({ storage: 'memory:' })
  })

  it('takes the URL of a Redis server', async () => {
    for (const url of ['redis://localhost', 'redis://ada:secret@10.0.0.1:6380/2', 'rediss://example.org'])
      expect(await read('--redis', url)).toMatchObject({ storage: url })
  })

  it('takes the time between two looks', async () => {
    expect(await read()).toMatchObject({ every: undefined })
    expect(await read('--every', '5s')).toMatchObject({ every: 5000 })
    for (const text of ['5', '0s', '10ms', 'soon', '', '2d'])
      await expect(read('--every', text)).rejects.toThrow(
        /--every: expected a duration .* from 1s to 1d, got/,
      )
  })

  it('helps, whatever else is there', async () => {
    expect(await read('--help', 'nowhere')).toBe('help')
    expect(await read('-h')).toBe('help')
  })
})

describe('what is refused, in one line', () => {
  it.each([
    [['--colour'], "unknown option '--colour'"],
    [['-x'], "unknown option '-x'"],
    [['nowhere'], 'there is no folder nowhere'],
    [['file'], 'file is a file, not a folder'],
    [['file/below'], 'there is no folder file/below'],
    [[''], 'the folder has an empty name'],
    [['folder', 'link'], 'one folder at a time, got 2'],
    [['--concurrency', '0'], "--concurrency: expected a whole number from 1 to 1000, got '0'"],
    [['--concurrency', '1001'], "got '1001'"],
    [['--concurrency', '2.5'], "got '2.5'"],
    [['--concurrency', 'many'], "got 'many'"],
    [['--concurrency='], "got ''"],
    [['--concurrency', '0x10'], "got '0x10'"],
    [['--concurrency', '-1'], 'concurrency'],
    [['--concurrency'], 'concurrency'],
    [['--fresh=yes'], 'fresh'],
    [['--storage', 'tasks.db'], "--storage: expected sqlite:<file> or memory:, got 'tasks.db'"],
    [['--storage', 'sqlite:'], "got 'sqlite:'"],
    [['--storage', 'redis://localhost'], "got 'redis://localhost'"],
    [['--storage', ''], "got ''"],
    [['--redis', 'localhost:6379'], "--redis: expected a URL such as redis://localhost:6379, got 'localhost"],
    [['--redis', 'http://localhost'], "got 'http://localhost'"],
    [['--redis', 'redis://'], "got 'redis://'"],
    [['--redis='], "got ''"],
    [['--redis'], 'redis'],
    [['--redis', 'redis://x', '--storage', 'memory:'], '--storage and --redis: one of them, got both'],
    [['--storage', 'sqlite:nowhere/a.db'], '--storage: there is no folder'],
    [['--storage', 'sqlite:folder'], 'is a folder, not a file'],
  ])('%j', async (args, words) => {
    const error = await read(...args).catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(UsageError)
    expect((error as Error).message).toContain(words)
    expect((error as Error).message).not.toContain('\n')
  })
})
