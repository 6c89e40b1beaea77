/** The figures as a table for people and as JSON for programs. */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Result } from './measure.js'

export function printMachine(): void {
  const [first] = cpus()
  console.log(`\nNode ${process.version}, ${cpus().length} × ${first?.model.trim() ?? 'unknown processor'}`)
}

/** @param results of one row */
export function printRow(results: readonly Result[]): void {
  const [first] = results
  if (first !== undefined) console.log(`\n${first.row} (${first.unit})`)
  for (const { subject, median, min, max, ratio } of results) {
    const against = Object.entries(ratio).map(([peer, times]) => `${times.toFixed(2)}x ${peer}`)
    const spread = `${figure(min)} to ${figure(max)}`
    console.log(
      `  ${subject.padEnd(28)}${figure(median).padStart(12)}   ${spread.padEnd(26)}${against.join('  ')}`,
    )
  }
}

/**
 * @param rows the names of all rows of the suite: those that were not measured now keep their figures
 * @returns the path, from the repository's root
 */
export async function writeResults(
  suite: string,
  results: readonly Result[],
  rows: readonly string[],
): Promise<string> {
  const folder = fileURLToPath(new URL('../results', import.meta.url))
  const file = `${folder}/${suite}.json`
  await mkdir(folder, { recursive: true })
  const known = await readFile(file, 'utf8').then(
    (text) => JSON.parse(text) as Result[],
    () => [],
  )
  const measured = new Set(results.map(({ row }) => row))
  const all = [...known.filter(({ row }) => !measured.has(row)), ...results]
  const inOrder = rows.flatMap((name) => all.filter(({ row }) => row === name))
  await writeFile(file, `${JSON.stringify(inOrder, undefined, 2)}\n`)
  return `bench/results/${suite}.json`
}

function figure(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en-US') : value.toFixed(2)
}
