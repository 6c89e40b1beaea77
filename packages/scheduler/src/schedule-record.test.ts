import { describe, expect, it } from 'vitest'
import type { Definition, Schedule } from './schedule.js'
import { Definitions, hashOf, parseSchedule, serialize } from './schedule-record.js'

const definition: Definition = {
  task: { kind: 'mail', payload: '{"to":"ada\\n"}', codec: 'json', priority: 2, options: '{"tags":["a"]}' },
  submit: { retry: { limit: 2 }, tags: ['a'] },
  every: 5000,
  overlap: 'skip',
  missed: { catchUp: 3 },
  jitter: 10,
  history: 25,
}

const schedule: Schedule = {
  id: 's',
  definition,
  hash: hashOf(definition),
  createdAt: 1000,
  anchor: 1000,
  next: 11_000,
  paused: true,
  runs: 1,
  lastTask: 's~6000',
  history: [
    { slot: 6000, code: 'fired' },
    { slot: 7000, code: 'triggered', taskId: 's~now-x' },
    { slot: 8000, code: 'missed' },
  ],
}

describe('the record of a schedule', () => {
  it('says all of it, in two lines', () => {
    const text = serialize(schedule)
    expect(text.split('\n')).toHaveLength(2)
    expect(parseSchedule('s', text)).toEqual(schedule)
    expect(parseSchedule('s', Buffer.from(text))).toEqual(schedule)
    const ended = { ...schedule, next: undefined, lastTask: undefined, paused: false, history: [] }
    expect(parseSchedule('s', serialize(ended))).toEqual(ended)
  })

  it('keeps a payload of bytes', () => {
    const payload = Uint8Array.from([0, 255, 10, 13])
    const bytes = { ...schedule, definition: { ...definition, task: { ...definition.task, payload } } }
    const [, line = ''] = serialize(bytes).split('\n')
    // Read by a process that has not written it.
    const again = parseSchedule('s', serialize(bytes).replace(line, `${line} `))
    expect([...(again.definition.task.payload as Uint8Array)]).toEqual([...payload])
  })

  it.each(['', 'x', '{}', '{"v":2}', '{"v":1}', '{"v":1}\n', '{"v":1,"e":[]}\n{}', 'null', '[]\n[]'])(
    'that says %o cannot be read, and the error names the schedule',
    (text) => {
      expect(() => parseSchedule('report', text)).toThrow(expect.objectContaining({ code: 'STORAGE_FORMAT' }))
      expect(() => parseSchedule('report', text)).toThrow(/schedule report/)
    },
  )
})

describe('the hash of a definition', () => {
  it('does not depend on the order in which it was put together', () => {
    const { every, ...rest } = definition
    expect(hashOf({ every, ...rest, zone: undefined })).toBe(hashOf(definition))
  })

  it.each<[string, Partial<Definition>]>([
    ['data', { task: { ...definition.task, payload: '2' } }],
    ['interval', { every: 5001 }],
    ['policy', { missed: { catchUp: 4 } }],
    ['end', { end: 5 }],
    ['tags', { task: { ...definition.task, options: '{"tags":["b"]}' } }],
  ])('depends on the %s', (_, change) => {
    expect(hashOf({ ...definition, ...change })).not.toBe(hashOf(definition))
  })
})

describe('definitions that were read', () => {
  it('are kept for the next time, each for its schedule and its text', () => {
    const definitions = new Definitions()
    definitions.keep('a', 'text', definition)
    expect(definitions.find('a', 'text')).toBe(definition)
    expect(definitions.find('a', 'other')).toBeUndefined()
    expect(definitions.find('b', 'text')).toBeUndefined()
    const text = serialize(schedule)
    expect(parseSchedule('s', text, definitions).definition).toBe(
      parseSchedule('s', text, definitions).definition,
    )
  })

  it('give way to newer ones when they are many MB', () => {
    const definitions = new Definitions()
    const text = 'x'.repeat(1024 * 1024)
    for (let i = 0; i < 12; i++) definitions.keep(`s${i}`, text, definition)
    const kept = Array.from({ length: 12 }, (_, i) => definitions.find(`s${i}`, text) !== undefined)
    expect(kept).toEqual([...Array<boolean>(4).fill(false), ...Array<boolean>(8).fill(true)])
    for (let i = 0; i < 100; i++) definitions.keep('s11', text, definition)
    expect(definitions.find('s4', text)).toBe(definition)
  })
})
