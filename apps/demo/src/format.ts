/** Values as people read them, the same in every country. */

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 })

export const formatCount = (value: number): string => whole.format(value)

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']

/** `999 B`, `1.5 kB`, `12.3 GB`. */
export function formatBytes(bytes: number): string {
  let value = bytes
  let unit = 0
  while (value >= 999.95 && unit < UNITS.length - 1) {
    value /= 1000
    unit++
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`
}

/** `0.12 ms`, `34 ms`, `5.6 s`. */
export function formatMs(ms: number): string {
  if (ms < 10) return `${ms.toFixed(2)} ms`
  return ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`
}

/** `12 s`, `3 min 05 s`, `2 h 07 min`. */
export function formatSpan(seconds: number): string {
  const s = Math.ceil(seconds)
  if (s < 60) return `${s} s`
  const two = (value: number): string => String(value).padStart(2, '0')
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`
  return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} min`
}

/** A part of a whole; a dash when there is no whole. */
export const formatShare = (part: number, of: number): string =>
  of === 0 ? '-' : `${((100 * part) / of).toFixed(1)} %`

/** File names may hold anything; what could move the cursor or lie about the order of letters is shown as a code. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`
  })
}

/** Rows below a header; the first column on the left, numbers on the right, and `free` columns last as they are. */
export function table(header: readonly string[], rows: readonly (readonly string[])[], free = 0): string {
  const all = [header, ...rows]
  const fixed = header.length - free
  const widths = header
    .slice(0, fixed)
    .map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)))
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => {
        if (column >= fixed) return cell
        return column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)
      })
      .join('   ')
      .trimEnd()
  return all.map((row) => `  ${line(row)}\n`).join('')
}
