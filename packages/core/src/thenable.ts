/** Whether this is a promise, of whatever library: what a handler or a listener returned has to be awaited then. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    value !== null && typeof value === 'object' && typeof (value as { then?: unknown }).then === 'function'
  )
}
