/**
 * One test run over the workspace, a project for each package. Imports of a workspace package lead to its `src`, so that
 * tests see the code as it stands; processes that a test starts use `dist`, which `npm test` builds first.
 */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { workspacePackages } from './scripts/workspace.mjs'

const packages = workspacePackages()

export default defineConfig({
  resolve: { alias: packages.flatMap(sourceAliases) },
  test: {
    // A busy machine may take long over a process that a test starts; a test that must be fast says so itself.
    testTimeout: 30_000,
    hookTimeout: 30_000,
    // Most tests wait for processes and timers, so no core needs to be kept free for the runner.
    maxWorkers: '100%',
    projects: packages
      .filter(({ dir }) => existsSync(join(dir, 'tsconfig.test.json')))
      .map(({ dir, manifest }) => ({
        extends: true,
        test: {
          name: manifest.name.replace('@neotask/', ''),
          root: dir,
          include: ['src/**/*.test.ts'],
          typecheck: {
            enabled: hasTypeTests(dir),
            include: ['src/**/*.test-d.ts'],
            tsconfig: 'tsconfig.test.json',
            ignoreSourceErrors: true, // `npm run types` reports those
          },
        },
      })),
  },
})

function hasTypeTests(dir: string) {
  const files = readdirSync(join(dir, 'src'), { recursive: true, encoding: 'utf8' })
  return files.some((file) => file.endsWith('.test-d.ts'))
}

/** One alias for each entry of `exports` that is built from a TypeScript file. */
function sourceAliases({ dir, manifest }: (typeof packages)[number]) {
  return Object.entries(manifest.exports ?? {}).flatMap(([path, target]) => {
    const built = typeof target === 'string' ? target : (target.default ?? '')
    if (!built.startsWith('./dist/')) return []
    const source = built.replace('./dist/', 'src/').replace(/\.js$/, '.ts')
    return [{ find: new RegExp(`^${manifest.name}${path.slice(1)}$`), replacement: join(dir, source) }]
  })
}
