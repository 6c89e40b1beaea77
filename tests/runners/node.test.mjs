import { createTestPool } from '@neotask/core/testing'
import assert from 'node:assert/strict'
import { afterEach, beforeEach, mock, test } from 'node:test'
import { outbox, sendMail, signUp, tasks } from './app.mjs'

/** @type {import('@neotask/core/testing').TestPool} */
let pool

beforeEach(() => {
  outbox.length = 0
  pool = createTestPool({ tasks })
})
afterEach(async () => {
  mock.timers.reset()
  await pool.close()
})

test('a sign-up submits two mails', async () => {
  await signUp(pool, 'ada@example.org')
  pool.assertSubmitted(sendMail, { to: 'ada@example.org', template: 'welcome' })
  const { options } = pool.assertSubmitted(sendMail, { template: 'how-was-it' })
  assert.equal(options.delay, 3 * 86_400_000)
  pool.assertNotSubmitted(sendMail, { to: 'bob@example.org' })
  assert.throws(() => pool.assertSubmitted(sendMail, { to: 'bob@example.org' }), /bob@example\.org/)
  assert.deepEqual(outbox, [])
})

test('the mails go out at their times, also after a failure', async () => {
  await signUp(pool, 'busy@example.org')
  await pool.drain()
  assert.deepEqual(outbox, [])
  await pool.advance('30s')
  assert.deepEqual(outbox, ['welcome to busy@example.org'])
  await pool.advance('3d')
  assert.equal(outbox.length, 2)
})

test('nothing hangs while timers are mocked', async () => {
  mock.timers.enable()
  await signUp(pool, 'ada@example.org')
  await pool.drain()
  await pool.advance('7d')
  assert.equal(outbox.length, 2)
  await pool.close()
})
