/**
 * Every program in the documentation is type-checked and run as a user would run it: a process of its own, on the
 * built packages, that has to end by itself. What a line promises to print, `console.log(…) // text`, it must print.
 * Where a program names {@link REDIS}, it gets a server of the tests.
 */
import { spawn, spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { filesOf, pages, programsOf, root, type Program } from './docs-pages.js'
import { redisDatabase } from './redis-server.js'

// Below this package, so that imports find what it depends on.
const folder = join(import.meta.dirname, '..', 'dist', 'docs-examples')
const programs = pages().flatMap(programsOf)
const programFiles = pages().flatMap(filesOf)
const LONGEST = 20_000
const REDIS = 'redis://localhost:6379'

let typeErrors = ''
let work: string

beforeAll(async () => {
  work = mkdtempSync(join(tmpdir(), 'neotask-docs-'))
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(join(folder, 'out'), { recursive: true })
  for (const { name, source } of programFiles) writeFileSync(join(folder, 'out', name), source)
  const files = programs.map((program) => {
    const file = `${fileOf(program)}.${program.language}`
    writeFileSync(join(folder, file), program.source)
    if (program.language === 'js') copyFileSync(join(folder, file), join(folder, 'out', file))
    return file
  })
  const config = {
    compilerOptions: {
      target: 'es2023',
      lib: ['es2023', 'esnext.disposable'],
      module: 'nodenext',
      types: ['node'],
      strict: true,
      skipLibCheck: true,
      outDir: 'out',
      rootDir: '.',
    },
    files: files.filter((file) => file.endsWith('.ts')),
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc')
  typeErrors = spawnSync(process.execPath, [tsc, '-p', '.'], { cwd: folder, encoding: 'utf8' }).stdout
  const onRedis = programs.filter(({ source }) => source.includes(REDIS))
  for (const [index, program] of onRedis.entries()) {
    const file = join(folder, 'out', `${fileOf(program)}.js`)
    const source = readFileSync(file, 'utf8')
    writeFileSync(file, source.replaceAll(REDIS, await redisDatabase(index + 1)))
  }
}, 120_000)

afterAll(() => {
  rmSync(work, { recursive: true, force: true })
})

describe('the programs of the documentation', () => {
  it('are there', () => {
    expect(programs.length).toBeGreaterThan(20)
    expect(new Set(programFiles.map(({ name }) => name)).size).toBe(programFiles.length)
  })

  it('have the right types', () => {
    expect(typeErrors).toBe('')
  })

  it.concurrent.each(programs)(
    '$name runs and prints what it says',
    { timeout: LONGEST + 5000 },
    async (program) => {
      const { code, stdout, stderr } = await run(join(folder, 'out', `${fileOf(program)}.js`))
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      const printed = stdout.split('\n')
      let from = 0
      for (const text of program.prints) {
        const at = printed.indexOf(text, from)
        expect(at, `${JSON.stringify(text)} is missing in:\n${stdout}`).toBeGreaterThanOrEqual(from)
        from = at + 1
      }
    },
  )
})

/** `docs/guide/tasks.md:12` as the name of a file. */
function fileOf({ name }: Program): string {
  return name.replaceAll(/[^A-Za-z0-9.]+/g, '-')
}

/** Runs it in an empty folder. */
async function run(file: string): Promise<{ code: number | string; stdout: string; stderr: string }> {
  const cwd = mkdtempSync(join(work, 'run-'))
  const child = spawn(process.execPath, [file], { cwd, stdio: ['ignore', 'pipe', 'pipe'] })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const timer = setTimeout(() => child.kill('SIGKILL'), LONGEST)
  const code = await new Promise<number | string>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (status, signal) => resolve(status ?? signal ?? 'no status'))
  })
  clearTimeout(timer)
  return { code: code === 'SIGKILL' ? `still running after ${LONGEST} ms` : code, stdout, stderr }
}
