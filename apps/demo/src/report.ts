/** What it all came to: totals by kind of file, the largest files, what could not be read, and the pool's own figures. */
import type { LatencySummary, PoolStats } from '@neotask/core'
import { extname } from 'node:path'
import type { Analysis } from './analyse.js'
import { formatBytes, formatCount, formatMs, formatShare, printable, table } from './format.js'

interface Sums {
  files: number
  bytes: number
  lines: number
  words: number
  gzipped: number
}

const LARGEST = 5
const KINDS = 15
const FAILURES = 100

/** Adds up results as they come; its memory grows with the kinds of file and the failures, not with the files. */
export class Totals {
  readonly all: Sums = nothing()
  readonly byKind: Map<string, Sums> = new Map()
  /** The largest first. */
  readonly largest: { path: string; analysis: Analysis }[] = []
  readonly failures: { path: string; reason: string }[] = []

  add(path: string, analysis: Analysis): void {
    const kind = extname(path).toLowerCase() || '(none)'
    let sums = this.byKind.get(kind)
    if (sums === undefined) this.byKind.set(kind, (sums = nothing()))
    for (const each of [this.all, sums]) {
      each.files++
      each.bytes += analysis.bytes
      each.lines += analysis.lines
      each.words += analysis.words
      each.gzipped += analysis.gzipped
    }
    const { largest } = this
    const place = largest.findIndex((other) => other.analysis.bytes < analysis.bytes)
    largest.splice(place === -1 ? largest.length : place, 0, { path, analysis })
    if (largest.length > LARGEST) largest.pop()
  }

  fail(path: string, reason: string): void {
    this.failures.push({ path, reason })
  }
}

function nothing(): Sums {
  return { files: 0, bytes: 0, lines: 0, words: 0, gzipped: 0 }
}

/** The tables of results. */
export function reportResults(totals: Totals): string {
  const parts: string[] = []
  if (totals.all.files > 0) parts.push(kindsTable(totals), largestTable(totals))
  if (totals.failures.length > 0) parts.push(failureList(totals))
  return parts.join('\n')
}

/** What the pool counted and measured while it ran. */
export function reportPool(stats: PoolStats): string {
  const { submitted, completed, failed, retried, throughput, latency } = stats
  const counts = [submitted, completed, failed, retried].map(formatCount)
  const row = (name: string, { p50, p95, p99, count }: LatencySummary): string[] => [
    name,
    ...[p50, p95, p99].map((value) => (count === 0 ? '-' : formatMs(value))),
  ]
  return [
    'The pool, in this run\n',
    table(
      ['', 'submitted', 'completed', 'failed', 'retried', 'throughput'],
      [['tasks', ...counts, `${formatCount(throughput)}/s`]],
    ),
    '\n',
    table(['', 'p50', 'p95', 'p99'], [row('wait', latency.wait), row('run', latency.run)]),
  ].join('')
}

function kindsTable({ all, byKind }: Totals): string {
  const kinds = [...byKind].sort(([, a], [, b]) => b.bytes - a.bytes)
  const rows = kinds.slice(0, KINDS).map(([kind, sums]) => sumsRow(printable(kind).slice(0, 20), sums))
  const others = kinds.slice(KINDS)
  if (others.length > 0) {
    const rest = others.reduce((sum, [, sums]) => plus(sum, sums), nothing())
    rows.push(sumsRow(`${others.length} others`, rest))
  }
  if (kinds.length > 1) rows.push(sumsRow('total', all))
  return `Files by extension\n${table(['', 'files', 'bytes', 'lines', 'words', 'gzip'], rows)}`
}

function sumsRow(name: string, { files, bytes, lines, words, gzipped }: Sums): string[] {
  const counts = [lines, words].map(formatCount)
  return [name, formatCount(files), formatBytes(bytes), ...counts, formatShare(gzipped, bytes)]
}

function plus(a: Sums, b: Sums): Sums {
  return {
    files: a.files + b.files,
    bytes: a.bytes + b.bytes,
    lines: a.lines + b.lines,
    words: a.words + b.words,
    gzipped: a.gzipped + b.gzipped,
  }
}

function largestTable({ largest }: Totals): string {
  const rows = largest.map(({ path, analysis: { bytes, lines, words, gzipped, sha256 } }) => {
    const counts = [formatBytes(bytes), formatCount(lines), formatCount(words), formatShare(gzipped, bytes)]
    return [sha256.slice(0, 12), ...counts, printable(path)]
  })
  return `The largest files\n${table(['SHA-256', 'bytes', 'lines', 'words', 'gzip', 'path'], rows, 1)}`
}

function failureList({ failures }: Totals): string {
  const shown = failures
    .slice(0, FAILURES)
    .map(({ path, reason }) => `  ${printable(path)}   ${printable(reason)}\n`)
  const rest = failures.length - shown.length
  if (rest > 0) shown.push(`  and ${formatCount(rest)} more\n`)
  return `Could not be read: ${formatCount(failures.length)}\n${shown.join('')}`
}
