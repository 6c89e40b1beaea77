import { describe, expect, it } from 'vitest'
import { jsonCodec } from './codec.js'
import { Execution } from './execution.js'
import { Slots } from './slots.js'

const host = {
  ref: { tenant: 'default', queue: 'default' },
  codec: jsonCodec,
  maxPayload: 1000,
  report: () => {},
  checkpoint: async () => {},
  now: () => 0,
}

function execution(id: string, token: number): Execution {
  const claimed = {
    ...{ id, token, kind: '', payload: '', codec: 'json', priority: 2 },
    ...{ attempts: 0, reclaims: 0, probation: false, waited: 0 },
  }
  return new Execution(host, claimed, 'session', 0)
}

describe('Slots', () => {
  it.each([3, 500])('finds the newest attempt of a task among %d, also after others have gone', (count) => {
    const slots = new Slots()
    const all = Array.from({ length: count }, (_, n) => execution(`t${n}`, n + 1))
    for (const each of all) slots.add(each)
    const again = execution('t1', 1000)
    slots.add(again)
    expect(slots.find('t1')).toBe(again)
    slots.remove(all[0] as Execution)
    expect(slots.find('t0')).toBeUndefined()
    expect(slots.find('t1')).toBe(again)
    expect(slots.find(`t${count - 1}`)).toBe(all.at(-1))
    slots.remove(again)
    expect(slots.find('t1')).not.toBe(again)
    for (const each of all.slice(1)) slots.remove(each)
    expect([slots.active, slots.executions, slots.find(`t${count - 1}`)]).toEqual([0, [], undefined])
  })

  it('forgets what it finds them by when nobody asks any more', () => {
    const slots = new Slots()
    for (let n = 0; n < 100; n++) slots.add(execution(`t${n}`, n + 1))
    expect(slots.find('t7')?.token).toBe(8)
    for (let n = 100; n < 1000; n++) {
      const each = execution(`t${n}`, n + 1)
      slots.add(each)
      slots.remove(each)
    }
    expect(slots.find('t999')).toBeUndefined()
    expect(slots.find('t8')?.token).toBe(9)
  })
})
