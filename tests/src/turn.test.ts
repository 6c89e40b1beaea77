import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'

const turn = join(import.meta.dirname, '../../scripts/turn.mjs')
let folder: string

beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'neotask-turn-'))))
afterEach(() => rmSync(folder, { recursive: true }))

/** Starts a process that notes when its turn begins and, after some work, when it ends. */
async function takeTurn() {
  const program = `
    import { appendFileSync } from 'node:fs'
    import { takeTurn } from ${JSON.stringify(turn)}
    const note = (what) => appendFileSync('notes', what + ' ' + process.pid + '\\n')
    const leave = await takeTurn('lock', () => {})
    note('begin')
    await new Promise((done) => setTimeout(done, 30))
    note('end')
    leave()`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    cwd: folder,
    stdio: 'inherit',
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  expect(code).toBe(0)
}

test('processes that start together take turns, and leave nothing behind', async () => {
  await Promise.all(Array.from({ length: 6 }, takeTurn))

  const notes = readFileSync(join(folder, 'notes'), 'utf8').trim().split('\n')
  expect(notes).toHaveLength(12)
  for (let i = 0; i < notes.length; i += 2) {
    expect(notes[i + 1]).toBe(notes[i]!.replace('begin', 'end'))
  }
  expect(existsSync(join(folder, 'lock'))).toBe(false)
})

test('the lock of a process that is gone is taken over', async () => {
  const child = spawn(process.execPath, ['-e', ''])
  await once(child, 'exit')
  writeFileSync(join(folder, 'lock'), String(child.pid))

  await takeTurn()

  expect(readFileSync(join(folder, 'notes'), 'utf8')).toContain('end')
})
