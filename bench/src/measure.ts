/** Runs the subjects of a row in turns, a process for each measurement. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Row } from './suites.js'

export interface Result {
  row: string
  subject: string
  unit: string
  median: number
  min: number
  max: number
  /** Median against the median of each peer, turned so that more than 1 speaks for the subject. */
  ratio: Record<string, number>
}

/** ms after which a measurement is given up. */
const LONGEST = 10 * 60_000

const program = fileURLToPath(new URL('index.js', import.meta.url))
const run = promisify(execFile)

export async function measureRow(suite: string, row: Row, rounds: number): Promise<Result[]> {
  const names = Object.keys(row.subjects)
  const figures = new Map<string, number[]>(names.map((name) => [name, []]))
  for (let round = 0; round < rounds; round++) {
    // Each round begins with another subject, so that none always runs on the warmer machine.
    for (let i = 0; i < names.length; i++) {
      const name = names[(i + round) % names.length] as string
      process.stderr.write(`${row.name}: round ${round + 1} of ${rounds}, ${name}\n`)
      figures.get(name)?.push(await measure(suite, `${row.name}/${name}`))
    }
  }
  const medians = new Map(names.map((name) => [name, median(figures.get(name) ?? [])]))
  return names.map((subject) => {
    const own = medians.get(subject) ?? NaN
    const of = figures.get(subject) ?? []
    const ratio: Record<string, number> = {}
    for (const [peer, other] of medians) {
      if (peer !== subject) ratio[peer] = row.better === 'more' ? own / other : other / own
    }
    return {
      row: row.name,
      subject,
      unit: row.unit,
      median: own,
      min: Math.min(...of),
      max: Math.max(...of),
      ratio,
    }
  })
}

async function measure(suite: string, what: string): Promise<number> {
  const { stdout } = await run(process.execPath, ['--expose-gc', program, suite, '--measure', what], {
    maxBuffer: 64 * 1024 * 1024,
    timeout: LONGEST,
  })
  const figure = Number(stdout.trim().split('\n').at(-1))
  if (!Number.isFinite(figure)) throw new Error(`${what} gave no figure: ${stdout}`)
  return figure
}

function median(of: readonly number[]): number {
  const sorted = [...of].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? NaN
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? NaN)) / 2
}
