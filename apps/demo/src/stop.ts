/** Ctrl-C: the first asks for a tidy end, the second ends at once. */

/** Signals and the exit codes that shells expect of who stops because of them. */
const CODES = { SIGINT: 130, SIGTERM: 143 } as const

/** npm passes a Ctrl-C on that the terminal has sent to this process too: within this time, in ms, two are one. */
const TWIN = 100

export interface Stop {
  /** Aborts at the first signal. */
  readonly signal: AbortSignal
  /** The exit code, once there was a signal. */
  readonly code: number | undefined
  /** Takes the listeners away. */
  end(): void
}

export function listenForStop(): Stop {
  const controller = new AbortController()
  let code: number | undefined
  let first = 0
  const heard = (name: 'SIGINT' | 'SIGTERM'): void => {
    const now = performance.now()
    if (code === undefined) {
      code = CODES[name]
      first = now
      controller.abort(new Error('stopped'))
    } else if (now - first > TWIN) {
      process.exit(CODES[name])
    }
  }
  process.on('SIGINT', heard)
  process.on('SIGTERM', heard)
  return {
    signal: controller.signal,
    get code() {
      return code
    },
    end() {
      process.off('SIGINT', heard)
      process.off('SIGTERM', heard)
    },
  }
}
