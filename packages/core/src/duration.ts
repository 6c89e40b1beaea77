/**
 * Durations as users write them: a number of ms, or text such as `'250ms'`, `'5m'`, `'1h30m'`.
 *
 * Whatever is not clearly a duration is refused with a message that names the option; nothing is guessed, so
 * that `'5'` or `'5 minutes'` never becomes 5 ms.
 */
import { optionError } from './errors.js'

/** A number of ms, or text: `'250ms'`, `'1.5s'`, `'5m'`, `'1h30m'`, `'7d'`. Units: w d h m s ms, largest first. */
export type Duration = number | string

/** ms: 100 000 years. Now and it are an instant that a Date can tell, for the next 170 000 years. */
export const LONGEST_DURATION: number = 36_525_000 * 86_400_000

const UNITS: readonly (readonly [unit: string, ms: number])[] = [
  ['w', 604_800_000],
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
]

// Each unit at most once, the largest first.
const TEXT = new RegExp(`^${UNITS.map(([unit]) => `(?:(\\d+(?:\\.\\d+)?)${unit})?`).join('')}$`)

/**
 * @param value what the user wrote
 * @param option its name, for the error
 * @param bounds in ms, both inclusive. Default: from 0 to 100 000 years
 * @returns ms
 * @throws ValidationError `OPTION_INVALID`
 */
export function parseDuration(
  value: unknown,
  option: string,
  bounds: { min?: number; max?: number } = {},
): number {
  const ms = typeof value === 'string' ? parseText(value) : value
  const { min = 0, max = LONGEST_DURATION } = bounds
  if (typeof ms !== 'number' || !(ms >= min && ms <= max)) throw optionError(option, expected(bounds), value)
  return ms
}

function parseText(text: string): number {
  const parts = text === '' ? null : TEXT.exec(text)
  if (parts === null) return NaN
  let ms = 0
  for (const [index, [, unit]] of UNITS.entries()) ms += Number(parts[index + 1] ?? 0) * unit
  // 1.005 s is 1005 ms, not 1004.9999999999999.
  return Math.round(ms * 1000) / 1000
}

function expected({ min, max }: { min?: number; max?: number }): string {
  const what = `a duration (ms, or text such as '250ms', '5m', '1h30m'`
  if (min !== undefined && max !== undefined) {
    return `${what}) from ${formatDuration(min)} to ${formatDuration(max)}`
  }
  if (max !== undefined) return `${what}) of at most ${formatDuration(max)}`
  return min !== undefined && min > 0
    ? `${what}) of at least ${formatDuration(min)}`
    : `${what}), not negative, at most ${formatDuration(LONGEST_DURATION)}`
}

/** The text that {@link parseDuration} reads back: `5400000` is `'1h30m'`. Weeks are shown as days. */
export function formatDuration(ms: number): string {
  if (!Number.isFinite(ms)) return String(ms)
  if (ms < 0) return `-${formatDuration(-ms)}`
  let text = ''
  let rest = Math.round(ms * 1000) / 1000
  for (const [unit, size] of UNITS) {
    if (unit === 'w') continue
    // What is left for the last unit may have a fraction.
    const count = unit === 'ms' ? Math.round(rest * 1000) / 1000 : Math.floor(rest / size)
    if (count > 0) text += `${count}${unit}`
    rest -= count * size
  }
  return text || '0ms'
}
