export type { DurabilityOptions } from './durability.js'
export { redisStorage } from './redis-storage.js'
export type { RedisStorageOptions } from './redis-storage.js'
