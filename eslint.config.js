import js from '@eslint/js'
import { defineConfig, globalIgnores } from 'eslint/config'
import tseslint from 'typescript-eslint'

const clockMessage = 'Time is owned by clock.ts: take it from the injected Clock.'
const timers = ['setTimeout', 'setInterval']

export default defineConfig(
  globalIgnores(['**/dist/', '**/coverage/', '.turbo/']),
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.js', '**/*.mjs'],
    extends: [js.configs.recommended],
    languageOptions: { globals: { process: 'readonly', console: 'readonly', URL: 'readonly' } },
    rules: { 'no-undef': 'off' }, // tsc checks these files too, and knows Node's globals
  },
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [js.configs.recommended, tseslint.configs.strictTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/consistent-type-exports': 'error',
      '@typescript-eslint/no-confusing-void-expression': [
        'error',
        { ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true },
      ],
      '@typescript-eslint/no-floating-promises': ['error', { checkThenables: true }],
      '@typescript-eslint/no-unnecessary-condition': [
        'error',
        { allowConstantLoopConditions: 'only-allowed-literals' },
      ],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', ignoreRestSiblings: true }],
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true, allowBoolean: true },
      ],
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
      // What a caller or a handler rejected with is passed on as it is.
      '@typescript-eslint/prefer-promise-reject-errors': ['error', { allowThrowingUnknown: true }],
      // Types are compared by structure, here as everywhere in TypeScript.
      '@typescript-eslint/no-unsafe-class-instance-assignment': 'off',
      // An async method without await turns a throw into the rejection that its interface promises.
      '@typescript-eslint/require-await': 'off',
      eqeqeq: 'error',
    },
  },
  {
    files: ['packages/*/src/**/*.ts'],
    ignores: ['**/clock.ts', '**/*.test.ts', '**/*.test-d.ts', 'packages/*/src/web/**'],
    rules: {
      'no-restricted-globals': ['error', ...timers.map((name) => ({ name, message: clockMessage }))],
      'no-restricted-properties': [
        'error',
        ...timers.map((property) => ({ object: 'globalThis', property, message: clockMessage })),
        { object: 'Date', property: 'now', message: clockMessage },
        { object: 'performance', property: 'now', message: clockMessage },
      ],
      'no-restricted-syntax': [
        'error',
        { selector: 'NewExpression[callee.name="Date"][arguments.length=0]', message: clockMessage },
      ],
      'no-restricted-imports': [
        'error',
        ...['timers', 'timers/promises', 'node:timers', 'node:timers/promises'].map((name) => ({
          name,
          message: clockMessage,
        })),
      ],
    },
  },
  {
    files: ['packages/core/src/**/*.ts'],
    ignores: ['**/clock.ts', '**/*.test.ts', '**/*.test-d.ts'],
    rules: {
      'no-restricted-globals': [
        'error',
        ...timers.map((name) => ({ name, message: clockMessage })),
        ...['setImmediate', 'queueMicrotask'].map((name) => ({
          name,
          message:
            'Test runners replace it with a fake: import setImmediate from clock.ts, or use a promise.',
        })),
      ],
    },
  },
  {
    files: ['**/*.test.ts', '**/*.test-d.ts'],
    rules: {
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/unbound-method': 'off',
      '@typescript-eslint/no-invalid-void-type': 'off',
    },
  },
)
