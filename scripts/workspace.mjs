/**
 * Where the workspace keeps its packages, read from pnpm-workspace.yaml so that a new package is found by every
 * script, the test runner and the checks without a second list.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The folder of the repository, without a slash at its end. */
export const root = fileURLToPath(new URL('..', import.meta.url)).replace(/[\\/]$/, '')

/**
 * @typedef {object} Manifest  What the scripts read of a package.json.
 * @property {string} name
 * @property {string} [version]
 * @property {boolean} [private]
 * @property {string} [packageManager]
 * @property {{ node: string }} engines
 * @property {Record<string, string | Record<string, string>>} [exports]
 */

/** @type {(dir: string) => Manifest} */
export const readManifest = (dir) => JSON.parse(readFileSync(join(dir, 'package.json'), 'utf8'))

/**
 * Every package of the workspace, without the root.
 *
 * @returns {{ dir: string, manifest: Manifest }[]}
 */
export function workspacePackages() {
  const yaml = readFileSync(join(root, 'pnpm-workspace.yaml'), 'utf8')
  const patterns = [
    ...(yaml
      .split(/^(?=\S)/m)
      .find((block) => block.startsWith('packages:'))
      ?.matchAll(/- (\S+)/g) ?? []),
  ]
  return patterns
    .flatMap(([, pattern = '']) => (pattern.endsWith('/*') ? childFolders(pattern.slice(0, -2)) : [pattern]))
    .map((path) => join(root, path))
    .filter((dir) => existsSync(join(dir, 'package.json')))
    .map((dir) => ({ dir, manifest: readManifest(dir) }))
}

/** @param {string} parent */
function childFolders(parent) {
  if (!existsSync(join(root, parent))) return []
  return readdirSync(join(root, parent))
    .sort()
    .map((name) => join(parent, name))
}
