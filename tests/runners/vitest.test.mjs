import { createTestPool } from '@neotask/core/testing'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { outbox, sendMail, signUp, tasks } from './app.mjs'

/** @type {import('@neotask/core/testing').TestPool} */
let pool

beforeEach(() => {
  outbox.length = 0
  pool = createTestPool({ tasks })
})
afterEach(async () => {
  vi.useRealTimers()
  await pool.close()
})

test('a sign-up submits two mails', async () => {
  await signUp(pool, 'ada@example.org')
  pool.assertSubmitted(sendMail, { to: expect.stringContaining('@'), template: 'welcome' })
  expect(pool.submitted(sendMail).map(({ data }) => data.template)).toEqual(['welcome', 'how-was-it'])
  expect(() => pool.assertSubmitted(sendMail, { to: 'bob@example.org' })).toThrow('bob@example.org')
  expect(outbox).toEqual([])
})

test('the mails go out at their times, also after a failure', async () => {
  await signUp(pool, 'busy@example.org')
  await pool.drain()
  expect(outbox).toEqual([])
  await pool.advance('30s')
  expect(outbox).toEqual(['welcome to busy@example.org'])
  await pool.advance('3d')
  expect(outbox).toHaveLength(2)
})

test('nothing hangs while timers are faked', async () => {
  vi.useFakeTimers()
  await signUp(pool, 'ada@example.org')
  await pool.drain()
  await pool.advance('7d')
  expect(outbox).toHaveLength(2)
  await pool.close()
})
