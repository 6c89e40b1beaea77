import { mkdir, mkdtemp, realpath, rm, symlink, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { taskIdOf, walk } from './walk.js'

let root: string

beforeEach(async () => {
  root = await realpath(await mkdtemp(join(tmpdir(), 'neotask-demo-')))
})
afterEach(() => rm(root, { recursive: true }))

async function write(...paths: string[]): Promise<void> {
  for (const path of paths) {
    await mkdir(join(root, path, '..'), { recursive: true })
    await writeFile(join(root, path), path)
  }
}

const paths = async (...except: string[]) => (await walk(root, { except })).files.map(({ path }) => path)

describe('walk', () => {
  it('finds the files of a tree in the order of their paths', async () => {
    await write('b/z', 'b/a/1', 'a', 'c', 'b/a/2', '.hidden', 'ü 空 😀')
    expect(await paths()).toEqual(['.hidden', 'a', 'c', 'ü 空 😀', 'b/z', 'b/a/1', 'b/a/2'])
  })

  it('leaves out .git, node_modules and dist at any depth, but not files that are called so', async () => {
    await write('.git/x', 'a/node_modules/x', 'a/dist/x', 'a/dist.txt', 'b/dist', 'c/.git')
    expect(await paths()).toEqual(['a/dist.txt', 'b/dist'])
  })

  it('follows no links, not even a loop', async () => {
    await write('a/file')
    await symlink('..', join(root, 'a', 'up'))
    await symlink('file', join(root, 'a', 'link'))
    await symlink('nowhere', join(root, 'dangling'))
    expect(await paths()).toEqual(['a/file'])
  })

  it('leaves out what it is told to', async () => {
    await write('tasks.db', 'tasks.db-wal', 'a')
    expect(await paths(join(root, 'tasks.db'), join(root, 'tasks.db-wal'))).toEqual(['a'])
  })

  it('goes as deep as the tree', async () => {
    const deep = Array.from({ length: 300 }, () => 'd').join('/')
    await write(`${deep}/file`)
    expect(await paths()).toEqual([`${deep}/file`])
  })

  it('finds all of a large folder', async () => {
    await write(...Array.from({ length: 200 }, (_, n) => `f${n}`))
    expect(new Set(await paths()).size).toBe(200)
  })

  it('says which folder it could not list', async () => {
    const { files, unlisted } = await walk(join(root, 'gone'))
    expect(files).toEqual([])
    expect(unlisted).toEqual([{ path: '.', reason: 'ENOENT' }])
  })

  it('stops when it is told to', async () => {
    await expect(walk(root, { signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough')
  })
})

describe('taskIdOf', () => {
  it('is the same for the same file, and another when its path, size or time changes', async () => {
    await write('a')
    const id = async () => taskIdOf((await walk(root)).files[0]!)
    const first = await id()
    expect(first).toMatch(/^[\w-]{32}$/)
    expect(await id()).toBe(first)
    await utimes(join(root, 'a'), 1, 1)
    const touched = await id()
    await writeFile(join(root, 'a'), 'longer')
    await utimes(join(root, 'a'), 1, 1)
    const longer = await id()
    expect(new Set([first, touched, longer]).size).toBe(3)
    expect(taskIdOf({ path: 'b', size: 1, modified: 0 })).not.toBe(
      taskIdOf({ path: 'a', size: 1, modified: 0 }),
    )
  })
})
