// What a program that bundles the package gets, minified, since doc comments are no cost to anybody.
export default [
  {
    name: '@neotask/core',
    path: 'packages/core/dist/index.js',
    gzip: true,
    limit: '44 kB',
    modifyEsbuildConfig: (config) => ({ ...config, platform: 'node' }),
  },
]
