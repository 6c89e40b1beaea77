/**
 * Random expressions around changes of the clocks that were odd, against the second calculator. More of them, and others:
 * `NEOTASK_CRON_RUNS=5000`.
 */
import { expect, it } from 'vitest'
import { runsAfter } from './calendar.test-helper.js'
import { parseCron } from './cron.js'
import { randomOf, type Random } from './random.test-helper.js'

const HOUR = 3_600_000

const CHANGES: readonly (readonly [zone: string, ...changes: string[]])[] = [
  ['Europe/Berlin', '2026-03-29T01:00:00Z', '2026-10-25T01:00:00Z'],
  ['America/New_York', '2026-03-08T07:00:00Z', '2026-11-01T06:00:00Z'],
  ['Australia/Lord_Howe', '2026-04-04T15:00:00Z', '2026-10-03T15:30:00Z'],
  ['Antarctica/Troll', '2026-03-29T01:00:00Z', '2026-10-25T01:00:00Z'],
  ['Asia/Beirut', '2026-03-28T22:00:00Z', '2026-10-24T21:00:00Z'],
  ['Africa/Cairo', '2026-04-23T22:00:00Z', '2026-10-29T21:00:00Z'],
  ['America/Sao_Paulo', '2018-11-04T03:00:00Z', '2018-02-18T02:00:00Z'],
  ['America/Havana', '2026-03-08T05:00:00Z', '2026-11-01T05:00:00Z'],
  ['Africa/Casablanca', '2026-02-15T02:00:00Z', '2026-03-22T02:00:00Z'],
  ['America/Caracas', '2007-12-09T07:00:00Z', '2016-05-01T07:00:00Z'],
  ['Asia/Pyongyang', '2018-05-04T15:00:00Z'],
  // A day that never was, days that were twice, and offsets with seconds
  ['Pacific/Apia', '2011-12-30T10:00:00Z', '2012-03-31T14:00:00Z'],
  ['Pacific/Kwajalein', '1993-08-21T12:00:00Z', '1969-09-30T13:00:00Z'],
  ['America/Juneau', '1867-10-19T08:57:41Z'],
  ['Asia/Manila', '1844-12-31T15:55:00Z'],
  ['Europe/Dublin', '1916-05-21T02:25:21Z', '1916-10-01T02:25:21Z'],
  ['Africa/Monrovia', '1972-01-07T00:44:30Z'],
]
const HOURS_AWAY = [-50, -26, -3, -2, -1.25, -1, -0.5, -0.0001, 0, 0.25, 0.5, 0.75, 1, 2]

it('random expressions come when the second calculator says', { timeout: 600_000 }, () => {
  const asked = process.env.NEOTASK_CRON_RUNS
  const random = randomOf(asked === undefined ? 1 : process.pid)
  let compared = 0
  for (let run = 0; run < Number(asked ?? 250); run++) {
    const expression = expressionBy(random)
    const [zone, ...changes] = random.pick(CHANGES)
    const after = Date.parse(random.pick(changes)) + random.pick(HOURS_AWAY) * HOUR
    let cron
    try {
      cron = parseCron(expression, zone)
    } catch (error) {
      expect(String(error)).toContain('can never come')
      continue
    }
    const runs: number[] = []
    for (let at = cron.next(after); at !== undefined && runs.length < 5; at = cron.next(at)) runs.push(at)
    const readable = (all: number[]): string[] => all.map((at) => new Date(at).toISOString())
    expect(readable(runs), `${expression} in ${zone} after ${new Date(after).toISOString()}`).toEqual(
      readable(runsAfter(expression, zone, after, 5)),
    )
    compared++
  }
  expect(compared).toBeGreaterThan(200)
})

function expressionBy(random: Random): string {
  const field = (min: number, max: number, stars: number, special: readonly string[] = []): string => {
    if (random.below(10) < stars) return random.pick(['*', '*', `*/${1 + random.below(max - min)}`])
    const members = Array.from({ length: random.pick([1, 1, 1, 2, 3]) }, () => {
      if (special.length > 0 && random.below(3) === 0) return random.pick(special)
      const from = min + random.below(max - min + 1)
      const to = from + random.below(max - from + 1)
      return random.pick([`${from}`, `${from}`, `${from}-${to}`, `${from}-${to}/${1 + random.below(7)}`])
    })
    return members.join(',')
  }
  const second = random.below(8) === 0 ? `${field(0, 59, 2)} ` : ''
  const days = random.pick(['*', '*', '?', field(1, 31, 2, ['L', '15W', '1W', '31W'])])
  const weekdays = random.pick(['*', '*', '?', field(0, 7, 2, ['FRIL', '1#2', 'SUN#5', 'FRI-SUN', '7L'])])
  return `${second}${field(0, 59, 3)} ${field(0, 23, 3)} ${days} ${field(1, 12, 8)} ${weekdays}`
}
