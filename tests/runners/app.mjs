/** A small application: it submits to the pool that it is given, and knows nothing of tests. */
import { defineTask } from '@neotask/core'

/** @type {string[]} */
export const outbox = []

export const sendMail = defineTask({
  name: 'send-mail',
  retry: { limit: 2, delay: '30s', jitter: 'none' },
  handler: async (/** @type {{ to: string, template: string }} */ mail, ctx) => {
    if (mail.to.startsWith('busy') && ctx.attempt === 1) throw new Error('mailbox busy')
    outbox.push(`${mail.template} to ${mail.to}`)
  },
})

export const tasks = [sendMail]

/**
 * @param {import('@neotask/core').TaskPool} pool
 * @param {string} address
 */
export async function signUp(pool, address) {
  await pool.submit(sendMail, { to: address, template: 'welcome' })
  await pool.submit(sendMail, { to: address, template: 'how-was-it' }, { delay: '3d' })
}
