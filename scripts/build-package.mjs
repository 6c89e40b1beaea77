/**
 * Builds the package in the current folder from nothing, so that no file of a source that is gone stays in `dist`:
 * TypeScript is compiled, and what else `src` holds (SQL, Lua) is copied to the same place.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './workspace.mjs'

rmSync('dist', { recursive: true, force: true })
const tsc = join(root, 'node_modules/typescript/bin/tsc')
const { status } = spawnSync(process.execPath, [tsc, '-b', 'tsconfig.build.json'], { stdio: 'inherit' })
if (status !== 0) process.exit(1)
cpSync('src', 'dist', { recursive: true, filter: (path) => !/\.tsx?$/.test(path) })
