/** jest runs ES modules as they are, without a transform, under `node --experimental-vm-modules`. */
export default {
  testMatch: ['<rootDir>/jest.test.mjs'],
  moduleFileExtensions: ['mjs', 'js', 'json'],
  transform: {},
}
