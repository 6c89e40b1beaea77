import type { NewTask } from '@neotask/core'
import { expect, test } from 'vitest'
import { decodeDefinition, encodeDefinition, flagsOf } from './definition.js'

const TIME = 1_790_000_000_123

/** As a script stores it. */
function stored(task: NewTask): Buffer {
  const flags = flagsOf(task, task.priority)
  const head = Buffer.alloc(6)
  head.writeUIntBE((flags.charCodeAt(0) - 0x40) * 2 ** 42 + TIME, 0, 6)
  return Buffer.concat([head, Buffer.from(encodeDefinition(task, flags, task.priority))])
}

const plain: NewTask = { id: 'a', kind: '', payload: '', codec: 'json', priority: 0 }

test.each<Partial<NewTask>>([
  {},
  { payload: 'héllo 任务 🚀', kind: 'mail', priority: 1000 },
  { payload: Uint8Array.from({ length: 256 }, (_, byte) => byte) },
  { codec: 'text' },
  { payload: Uint8Array.of(32), kind: 'two words' },
  { kind: 'two words', codec: '%41 b', nonce: 'a b', watcher: 'who is it' },
  { options: '', payload: ' ' },
  { options: '{"tags":["任务 "," "]}', payload: 'text', nonce: 'n', watcher: 'w' },
  { options: 'o'.repeat(20_000), priority: 127 },
  { options: 'o'.repeat(2 ** 20), priority: 128 },
  { priority: 2, kind: 'mail', payload: '1' },
  { priority: 2, payload: ' ' },
  { priority: 2, nonce: 'n', kind: 'mail' },
])('a definition is read as it was written: %j', (details) => {
  const task = { ...plain, ...details }
  const { kind, codec, priority, options, payload } = task
  expect(decodeDefinition(stored(task))).toEqual({ createdAt: TIME, kind, codec, priority, options, payload })
})

test('the usual task costs six bytes beside its payload', () => {
  expect(stored({ ...plain, priority: 2, payload: '{}' })).toHaveLength(8)
})
