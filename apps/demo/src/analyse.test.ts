import { NonRetryableError } from '@neotask/core'
import { createHash, randomBytes } from 'node:crypto'
import { chmod, mkdtemp, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawnSync } from 'node:child_process'
import { gunzipSync, gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { analyse } from './analyse.js'

let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'neotask-demo-'))
  await chmod(folder, 0o755)
})
afterAll(() => rm(folder, { recursive: true }))

async function analyseText(content: string | Buffer) {
  const path = join(folder, 'file')
  await writeFile(path, content)
  return await analyse(path)
}

describe('what it computes', () => {
  it.each([
    ['', 0, 0],
    ['one', 1, 1],
    ['one\n', 1, 1],
    ['one\ntwo', 2, 2],
    ['\n\n', 2, 0],
    ['  one\ttwo\r\n three ', 2, 3],
    ['ü 空 😀\n', 1, 3],
    ['a\0b', 1, 1],
  ])('%j has %i lines and %i words', async (text, lines, words) => {
    expect(await analyseText(text)).toMatchObject({ bytes: Buffer.byteLength(text), lines, words })
  })

  it.each([1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 1_000_000])(
    'sees all of %i random bytes',
    async (size) => {
      const bytes = randomBytes(size)
      const { sha256, gzipped, ...rest } = await analyseText(bytes)
      expect(sha256).toBe(createHash('sha256').update(bytes).digest('hex'))
      expect(rest.bytes).toBe(size)
      expect(gunzipSync(gzipSync(bytes))).toHaveLength(size)
      expect(Math.abs(gzipped - gzipSync(bytes).length)).toBeLessThan(32)
    },
  )

  it('counts words and lines across the borders of chunks as if there were none', async () => {
    const text = `${'word '.repeat(40_000)}\n`.repeat(3)
    expect(await analyseText(text)).toMatchObject({ lines: 3, words: 120_000 })
    expect(await analyseText('x'.repeat(200_000))).toMatchObject({ lines: 1, words: 1 })
  })

  it('needs no memory for the size of the file', async () => {
    const path = join(folder, 'sparse')
    await writeFile(path, '')
    await truncate(path, 60_000_000)
    const before = process.memoryUsage().rss
    expect(await analyse(path)).toMatchObject({ bytes: 60_000_000, lines: 1, words: 1 })
    expect(process.memoryUsage().rss - before).toBeLessThan(50_000_000)
  })
})

describe('what it cannot read', () => {
  const failing = (path: string) => analyse(path).catch((error: unknown) => error)

  it('vanished', async () => {
    const error = await failing(join(folder, 'gone'))
    expect(error).toBeInstanceOf(NonRetryableError)
    expect(error).toMatchObject({
      message: 'ENOENT: it vanished before it was read',
      cause: { code: 'ENOENT' },
    })
  })

  it('a folder', async () => {
    expect(await failing(folder)).toMatchObject({
      name: 'NonRetryableError',
      message: 'EISDIR: it is a folder now',
    })
  })

  it('below what is a file now', async () => {
    await writeFile(join(folder, 'file'), '')
    expect(await failing(join(folder, 'file', 'x'))).toMatchObject({ name: 'NonRetryableError' })
  })

  it.skipIf(process.platform === 'win32')('a link, wherever it leads', async () => {
    await symlink('file', join(folder, 'link'))
    expect(await failing(join(folder, 'link'))).toMatchObject({ message: 'ELOOP: it is a symbolic link now' })
  })

  it.skipIf(process.platform === 'win32')(
    'a pipe, without waiting for somebody to write into it',
    async () => {
      const path = join(folder, 'pipe')
      expect(spawnSync('mkfifo', [path]).status).toBe(0)
      expect(await failing(path)).toMatchObject({ name: 'NonRetryableError' })
    },
  )

  it.skipIf(process.platform === 'win32')('without permission', async () => {
    const path = join(folder, 'secret')
    await writeFile(path, 'secret', { mode: 0o000 })
    const root = process.getuid?.() === 0
    // Nothing is forbidden to root, so for a moment this is somebody else.
    if (root) process.seteuid?.(65534)
    try {
      expect(await failing(path)).toMatchObject({
        name: 'NonRetryableError',
        message: 'EACCES: no permission to read it',
      })
    } finally {
      if (root) process.seteuid?.(0)
    }
  })

  it('stops with the reason of its signal, in the middle of a file', async () => {
    const path = join(folder, 'large')
    await writeFile(path, '')
    await truncate(path, 10_000_000_000)
    const controller = new AbortController()
    const reason = new Error('enough')
    const reading = analyse(path, controller.signal)
    setTimeout(() => controller.abort(reason), 50)
    await expect(reading).rejects.toBe(reason)
    await expect(analyse(path, controller.signal)).rejects.toBe(reason)
  })
})
