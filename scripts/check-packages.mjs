/**
 * Looks at the packages as their users will receive them: packed, then checked for what `exports` and the types promise
 * (publint, attw), for unused files, exports and dependencies (knip) and for their size (size-limit).
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { root, workspacePackages } from './workspace.mjs'

/** Runs every check, prints one line for each, and sets the exit code when one failed. */
export function checkPackages() {
  const folder = mkdtempSync(join(tmpdir(), 'neotask-pack-'))
  try {
    const published = workspacePackages().filter(({ manifest }) => !manifest.private)
    for (const { dir, manifest } of published)
      check(`pack ${manifest.name}`, ['pnpm', 'pack', '--pack-destination', folder], dir)
    for (const name of readdirSync(folder)) {
      const tarball = join(folder, name)
      check(`publint ${name}`, ['publint', 'run', '--strict', tarball])
      check(`attw ${name}`, ['attw', '--profile', 'esm-only', tarball])
    }
    check('knip', ['knip'])
    check('size-limit', ['size-limit'])
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/**
 * @param {string} label
 * @param {string[]} command  A tool of the repository with its arguments.
 * @param {string} [cwd]
 */
function check(label, [tool = '', ...args], cwd = root) {
  const start = performance.now()
  const bin = join(root, 'node_modules', '.bin', tool)
  const { status, stdout, stderr } = spawnSync(bin, args, {
    cwd,
    encoding: 'utf8',
    shell: process.platform === 'win32',
  })
  const seconds = ((performance.now() - start) / 1000).toFixed(1)
  console.log(`${status === 0 ? 'ok    ' : 'FAILED'} ${label} (${seconds} s)`)
  if (status === 0) return
  console.log(stdout + stderr)
  process.exitCode = 1
}
