/**
 * The rule for changes of the clocks, over every zone and every change from 2024 to 2032, against a search that goes
 * from minute to minute and knows of nothing but what `Intl` says the clocks show.
 */
import { describe, expect, it } from 'vitest'
import { wallClock } from './calendar.test-helper.js'
import { parseCron } from './cron.js'

const MINUTE = 60_000
const DAY = 1440 * MINUTE
const FROM = Date.UTC(2024, 0, 1)
const UNTIL = Date.UTC(2033, 0, 1)
/** Around a change is what may be repeated, and what follows to past the next midnight and the night after it. */
const BEFORE = 4 * 60 * MINUTE
const AFTER = 27 * 60 * MINUTE

interface Rule {
  readonly expression: string
  readonly fixed: boolean
  readonly matches: (hour: number, minute: number) => boolean
}

const RULES: readonly Rule[] = [
  { expression: '30 2 * * *', fixed: true, matches: (hour, minute) => hour === 2 && minute === 30 },
  { expression: '0,30 2 * * *', fixed: true, matches: (hour, minute) => hour === 2 && minute % 30 === 0 },
  { expression: '0 * * * *', fixed: false, matches: (_, minute) => minute === 0 },
  { expression: '*/15 * * * *', fixed: false, matches: (_, minute) => minute % 15 === 0 },
  { expression: '@daily', fixed: true, matches: (hour, minute) => hour === 0 && minute === 0 },
]

const zones = Intl.supportedValuesOf('timeZone')
/** The zones that change their clocks at the same instants in the same way, and those instants. */
const groups = new Map<string, { zones: string[]; changes: number[] }>()
let transitions = 0
for (const zone of zones) {
  const changes = changesOf(zone)
  transitions += changes.length
  if (changes.length === 0) continue
  const key = changes.map((at) => `${at} ${offset(zone, at - MINUTE)} ${offset(zone, at)}`).join()
  const group = groups.get(key)
  if (group === undefined) groups.set(key, { zones: [zone], changes })
  else group.zones.push(zone)
}

describe('every change of the clocks from 2024 to 2032', () => {
  it('is known', () => {
    expect(zones.length).toBeGreaterThan(400)
    expect(transitions).toBeGreaterThan(2000)
    const grouped = [...groups.values()].map((group) => group.zones.length * group.changes.length)
    expect(grouped.reduce((sum, count) => sum + count)).toBe(transitions)
  })

  it.each(
    [...groups.values()].map((group) => ({ name: group.zones[0], count: group.zones.length, ...group })),
  )('in $name and $count zones in all', ({ zones: members, changes }) => {
    let checked = 0
    for (const change of changes) {
      const expected = search(members[0]!, change - BEFORE, change + AFTER)
      for (const zone of members) {
        // Each zone has its own data, so each is asked: the first around the change, the others at it.
        const until = change + (zone === members[0] ? AFTER : BEFORE)
        for (const [index, { expression }] of RULES.entries()) {
          const runs = runsBetween(expression, zone, change - BEFORE, until)
          const wanted = expected[index]!.filter((at) => at < until)
          expect(runs, `${expression} in ${zone} around ${new Date(change).toISOString()}`).toEqual(wanted)
        }
        checked++
      }
    }
    expect(checked).toBe(members.length * changes.length)
  })

  it.each([
    ['30 2 * * *', 'Europe/Berlin'],
    ['0 2 * * *', 'Australia/Lord_Howe'],
    ['@daily', 'Asia/Beirut'],
    ['@daily', 'Africa/Cairo'],
    ['30 1 * * *', 'Antarctica/Troll'],
  ])('gives %s in %s one run for each day', (expression, zone) => {
    const runs = runsBetween(expression, zone, FROM - offset(zone, FROM) - 1, UNTIL - offset(zone, UNTIL))
    const days = runs.map((at) => Math.floor(wallClock(zone, at) / DAY))
    expect(days).toEqual(Array.from({ length: (UNTIL - FROM) / DAY }, (_, i) => FROM / DAY + i))
  })

  it('leaves the zones without one alone', () => {
    const still = zones.filter((zone) => ![...groups.values()].some((group) => group.zones.includes(zone)))
    expect(still.length).toBeGreaterThan(100)
    for (const zone of still) {
      const at = FROM + 200 * DAY
      const next = parseCron('30 2 * * *', zone).next(at)!
      expect(wallClock(zone, next) % DAY).toBe(150 * MINUTE)
      expect(next - at).toBeLessThanOrEqual(DAY)
    }
  })
})

/** Found by asking every fourth day, then by halves: no zone changes twice within four days. */
function changesOf(zone: string): number[] {
  const changes: number[] = []
  for (let day = FROM; day < UNTIL; day += 4 * DAY) {
    let [from, to] = [day, day + 4 * DAY]
    const before = offset(zone, from)
    if (offset(zone, to) === before) continue
    while (to - from > MINUTE) {
      const middle = from + Math.floor((to - from) / 2 / MINUTE) * MINUTE
      if (offset(zone, middle) === before) from = middle
      else to = middle
    }
    changes.push(to)
  }
  return changes
}

function offset(zone: string, instant: number): number {
  return wallClock(zone, instant) - instant
}

/** For each rule its runs in an open interval, minute by minute. */
function search(zone: string, from: number, until: number): number[][] {
  const runs: number[][] = RULES.map(() => [])
  const shown = new Set<number>()
  const matches = (rule: Rule, local: number): boolean =>
    rule.matches(Math.floor(local / (60 * MINUTE)) % 24, Math.floor(local / MINUTE) % 60)
  let previous = wallClock(zone, from)
  for (let at = from + MINUTE; at < until; at += MINUTE) {
    const local = wallClock(zone, at)
    for (const [index, rule] of RULES.entries()) {
      let comes = matches(rule, local) && !(rule.fixed && shown.has(local))
      for (let skipped = previous + MINUTE; rule.fixed && skipped < local; skipped += MINUTE) {
        comes ||= matches(rule, skipped)
      }
      if (comes) runs[index]!.push(at)
    }
    shown.add(local)
    previous = local
  }
  return runs
}

function runsBetween(expression: string, zone: string, from: number, until: number): number[] {
  const cron = parseCron(expression, zone)
  const runs: number[] = []
  for (let at = cron.next(from); at !== undefined && at < until; at = cron.next(at)) runs.push(at)
  return runs
}
