/** The figures as a table for people and as JSON for programs. */
import { mkdir, writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Result } from './measure.js'

export function printTable(results: readonly Result[]): void {
  const [first] = cpus()
  console.log(`\nNode ${process.version}, ${cpus().length} × ${first?.model.trim() ?? 'unknown processor'}`)
  let row = ''
  for (const { row: name, subject, unit, median, min, max, ratio } of results) {
    if (name !== row) console.log(`\n${name} (${unit})`)
    row = name
    const against = Object.entries(ratio).map(([peer, times]) => `${times.toFixed(2)}x ${peer}`)
    const spread = `${figure(min)} to ${figure(max)}`
    console.log(`  ${subject.padEnd(28)}${figure(median).padStart(12)}   ${spread.padEnd(26)}${against.join('  ')}`)
  }
  console.log()
}

/** @returns the path, from the repository's root */
export async function writeResults(suite: string, results: readonly Result[]): Promise<string> {
  const folder = fileURLToPath(new URL('../results', import.meta.url))
  await mkdir(folder, { recursive: true })
  await writeFile(`${folder}/${suite}.json`, `${JSON.stringify(results, undefined, 2)}\n`)
  return `bench/results/${suite}.json`
}

function figure(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en-US') : value.toFixed(2)
}
