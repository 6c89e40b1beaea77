/** When a cron expression comes next. */
import { ValidationError } from '@neotask/core'
import { Cron as Calculator } from 'croner'

export class Cron {
  readonly expression: string
  readonly zone: string
  readonly #calculator: Calculator

  constructor(expression: string, zone: string) {
    this.expression = expression
    this.zone = zone
    this.#calculator = new Calculator(expression, { timezone: zone, paused: true })
  }

  next(after: number): number | undefined {
    return this.#calculator.nextRun(new Date(after))?.getTime()
  }
}

const crons = new Map<string, Cron>()

export function parseCron(expression: string, zone = 'UTC'): Cron {
  const key = `${zone}\n${expression}`
  let cron = crons.get(key)
  if (cron === undefined) {
    try {
      new Intl.DateTimeFormat('en', { timeZone: zone })
    } catch (cause) {
      throw new ValidationError('ZONE_INVALID', `zone: unknown ${zone}`, { cause })
    }
    try {
      cron = new Cron(expression, zone)
    } catch (cause) {
      throw new ValidationError('CRON_INVALID', `expression: ${expression}`, { cause })
    }
    crons.set(key, cron)
  }
  return cron
}
