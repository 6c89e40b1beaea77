export { sqliteStorage } from './sqlite-storage.js'
export type { SqliteStorageOptions } from './sqlite-storage.js'
