// A node in a process of its own, for processes.test.ts: `node node.mjs <file> <role> …`. Says on stdout what it does.
import { sqliteStorage } from '@neotask/storage-sqlite'

const [path, role, name, count] = process.argv.slice(2)
const ref = { tenant: 'acme', queue: 'mail' }
const rule = { age: 1e9, count: 1e6 }
const storage = sqliteStorage(path)
await storage.open()

/** Whoever is told that another process is writing repeats the call. */
async function repeat(action) {
  for (;;) {
    try {
      return await action()
    } catch (error) {
      if (!error.retryable) throw error
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 10))
    }
  }
}

async function openSession() {
  await storage.session.open(name, {
    ttl: 25_000,
    node: { id: name, host: 'here', pid: process.pid, concurrency: 10 },
    serves: { ...ref, kinds: [''] },
    retention: { success: rule, failed: rule },
    maxReclaims: 3,
  })
  const call = {
    session: name,
    ack: 0,
    ackTaken: 0,
    marks: [],
    reports: [],
    settlements: [],
    renew: false,
    want: 0,
  }
  return (part) => repeat(() => storage.session.work({ ...call, ...part }))
}

const roles = {
  /** Claims and settles until nothing is left, and says what it got. */
  async drain() {
    const work = await openSession()
    const got = []
    let settlements = []
    let ack = 0
    for (let empty = 0; empty < 20;) {
      const reply = await work({ ack, settlements, want: 7 })
      if (reply.stale.length > 0) throw new Error('a settlement is stale')
      ack = reply.token
      settlements = reply.claimed.map(({ id, token }) => ({
        id,
        token,
        outcome: 'success',
        result: name,
        codec: 'text',
      }))
      got.push(...reply.claimed.map((task) => task.id))
      empty = reply.claimed.length === 0 ? empty + 1 : 0
      await new Promise((resolve) => setTimeout(resolve, reply.claimed.length === 0 ? 20 : 0))
    }
    console.log(JSON.stringify(got))
  },

  /** Enqueues many, one transaction after the other. */
  async fill() {
    for (let i = 0; i < Number(count); i++) {
      const task = { id: `${name}-${i}`, kind: '', payload: 'p', codec: 'json', priority: 2 }
      await repeat(() => storage.queue.enqueue(ref, [task]))
    }
    console.log('done')
  },

  /** Waits to be woken, and says when. */
  async listen() {
    const heard = []
    await storage.notices.subscribe(`wake:${name}`, (message) => heard.push([message, Date.now()]))
    await storage.notices.subscribe('hello', (message) => message !== '*' && console.log(`hello ${message}`))
    console.log('ready')
    const hold = setInterval(() => {
      if (heard.length === 0) return
      clearInterval(hold)
      console.log(`woken ${heard[0][1]}`)
    }, 1)
    await new Promise((resolve) => process.stdin.once('end', resolve).resume())
  },

  /** Dies in the middle of a transaction. */
  async die() {
    await storage.queue.enqueue(ref, [{ id: 'kept', kind: '', payload: 'p', codec: 'json', priority: 2 }])
    const { default: Sqlite } = await import('better-sqlite3')
    const handle = new Sqlite(path)
    handle.exec(`BEGIN IMMEDIATE; UPDATE neotask_queues SET pending = 99; DELETE FROM neotask_tasks`)
    process.kill(process.pid, 'SIGKILL')
  },
}

await roles[role]()
await storage.close()
