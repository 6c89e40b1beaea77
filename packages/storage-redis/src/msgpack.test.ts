import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { pack, unpack, unpackMap } from './msgpack.js'
import { startServer, type TestServer } from './redis-server.test-helper.js'

let server: TestServer
let client: Redis
beforeAll(async () => {
  server = await startServer()
  client = new Redis(server.url)
})
afterAll(async () => {
  client.disconnect()
  await server.stop()
})

/** Through the one of Redis and back. */
async function through(value: Parameters<typeof pack>[0]): Promise<unknown> {
  const script = 'return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))'
  return unpack((await client.callBuffer('eval', [script, 0, pack(value)])) as Buffer)
}

test.each([
  0,
  1,
  127,
  128,
  255,
  256,
  65_535,
  65_536,
  2 ** 31,
  2 ** 32,
  2 ** 53 - 1,
  -1,
  -32,
  -33,
  -128,
  -129,
  -32_769,
  -(2 ** 40),
  0.5,
  1.7e12 + 0.25,
  1e300,
])('the number %s comes back from Redis', async (number) => {
  expect(await through(number)).toBe(number)
})

test.each([0, 1, 31, 32, 255, 256, 65_535, 65_536])('%i bytes come back from Redis', async (length) => {
  const bytes = Buffer.from(Array.from({ length }, (_, index) => index % 256))
  expect(await through(bytes)).toEqual(bytes)
})

test('texts come back as their bytes, and lists and maps with their parts', async () => {
  const items = Array.from({ length: 20 }, (_, index) => `item ${index}`)
  const fields = Object.fromEntries(items.map((item, index) => [item, index]))
  expect(await through('任务 🚀')).toEqual(Buffer.from('任务 🚀'))
  expect(await through(items)).toEqual(items.map((item) => Buffer.from(item)))
  expect(await through(fields)).toEqual(new Map(Object.entries(fields)))
})

test('what is undefined is left out, and an empty table of Lua is an empty map', async () => {
  expect(unpack(pack({ a: 1, b: undefined }))).toEqual(new Map([['a', 1]]))
  const empty = await client.callBuffer('eval', ['return cmsgpack.pack({})', 0])
  expect(unpackMap(empty as Buffer)).toEqual(new Map())
})
