export * from './clock.js'
export * from './errors.js'
export * from './storage.js'
export * from './task.js'
