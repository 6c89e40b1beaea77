/**
 * A copy of the core in a folder of its own, with a fault in it, and what the contract suite and the random test find
 * there. The search runs in a process, which is ended when the fault keeps it from ending.
 */
import { spawn } from 'node:child_process'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import ts from 'typescript'
import type { Fault } from './seeded-faults.js'

const repository = join(import.meta.dirname, '..', '..')
const core = join(repository, 'packages', 'core')
const worker = join(repository, 'tests', 'dist', 'fault-worker.js')

export interface Found {
  /** The numbers of the rules that failed. */
  readonly suite: readonly string[]
  /** The run of the random test that failed, and the length of the smallest case; absent when none did. */
  readonly random?: { readonly run: number; readonly length: number } | undefined
  /** Set when the search did not end, which is a finding too. */
  readonly hangs?: boolean
}

export interface SearchOptions {
  /** Random runs at most. */
  readonly runs: number
  /** The longest time in ms that a search may take. */
  readonly patience: number
}

/** The copy. It has no tests, and its dependencies are those of the core. */
export class FaultyCore {
  readonly #folder: string

  constructor() {
    this.#folder = mkdtempSync(join(tmpdir(), 'neotask-faults-'))
    cpSync(join(core, 'src'), join(this.#folder, 'src'), { recursive: true })
    symlinkSync(join(core, 'node_modules'), join(this.#folder, 'node_modules'), 'junction')
    writeFileSync(join(this.#folder, 'package.json'), '{ "type": "module" }')
    for (const name of readdirSync(join(this.#folder, 'src'), { recursive: true, encoding: 'utf8' }))
      if (name.endsWith('.ts') && !/\.test(-d)?\.ts$/.test(name)) this.#build(name, this.#source(name))
  }

  /** Puts the fault in, searches, and takes it out again. */
  async search(fault: Fault, options: SearchOptions): Promise<Found> {
    const source = this.#source(fault.file)
    this.#build(fault.file, withFault(source, fault))
    try {
      return await this.#run(options)
    } finally {
      this.#build(fault.file, source)
    }
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }

  #source(name: string): string {
    return readFileSync(join(this.#folder, 'src', name), 'utf8')
  }

  #build(name: string, source: string): void {
    const file = join(this.#folder, 'dist', name.replace(/\.ts$/, '.js'))
    const { outputText } = ts.transpileModule(source, {
      compilerOptions: {
        module: ts.ModuleKind.ESNext,
        target: ts.ScriptTarget.ES2023,
        verbatimModuleSyntax: true,
      },
    })
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, outputText)
  }

  #run({ runs, patience }: SearchOptions): Promise<Found> {
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, [worker, join(this.#folder, 'dist'), String(runs)], {
        stdio: ['ignore', 'pipe', 'inherit'],
        timeout: patience,
        killSignal: 'SIGKILL',
      })
      let output = ''
      child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
      child.on('error', reject)
      child.on('close', (code, signal) => {
        if (signal !== null) resolve({ suite: [], hangs: true })
        else if (code === 0) resolve(JSON.parse(output) as Found)
        else reject(new Error(`the search ended with code ${code}`))
      })
    })
  }
}

/** @throws when the text does not stand there exactly once */
export function withFault(source: string, { name, file, text, fault }: Fault): string {
  const count = source.split(text).length - 1
  if (count !== 1)
    throw new Error(`the text of the fault "${name}" stands ${count} times in ${file}, not once`)
  return source.replace(text, () => fault)
}

/** The file of a fault, as it is in the repository. */
export const sourceOf = (fault: Fault): string => readFileSync(join(core, 'src', fault.file), 'utf8')
