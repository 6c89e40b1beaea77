// What a program that bundles the package gets, minified, since doc comments are no cost to anybody.
const platform = (config) => ({ ...config, platform: 'node', format: 'esm' })

export default [
  {
    name: '@neotask/core',
    path: 'packages/core/dist/index.js',
    gzip: true,
    limit: '48 kB',
    // Loaded by those only whose handlers are files; measured below.
    modifyEsbuildConfig: (config) => ({ ...platform(config), external: ['./thread-pool.js'] }),
  },
  {
    name: '@neotask/core, what threads add in the pool',
    path: 'packages/core/dist/thread-pool.js',
    gzip: true,
    limit: '8.5 kB',
    modifyEsbuildConfig: platform,
  },
  {
    name: '@neotask/core, what each thread loads',
    path: 'packages/core/dist/thread-entry.js',
    gzip: true,
    limit: '5.25 kB',
    modifyEsbuildConfig: platform,
  },
  {
    name: '@neotask/scheduler, what it adds to core, croner included',
    path: 'packages/scheduler/dist/index.js',
    gzip: true,
    limit: '24 kB',
    modifyEsbuildConfig: (config) => ({
      ...platform(config),
      external: ['@neotask/core', '@neotask/core/tier'],
    }),
  },
]
