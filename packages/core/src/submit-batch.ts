/** The submits of a batch on their way: their ids in order, and the first that was refused. */
import type { Submission } from './lifecycle-manager.js'

export class SubmitBatch {
  readonly #ids: string[] = []
  #open = 0
  #refusedAt = Infinity
  #refusal: unknown
  #landed: (() => void) | undefined

  /** Submits that have no answer yet. */
  get open(): number {
    return this.#open
  }

  /** Whether one was refused, so that no more need be added. */
  get isRefused(): boolean {
    return this.#refusedAt < Infinity
  }

  /** One more, which `submit` sends on its way with what is to be called with its answer. */
  add(submit: (answer: Submission['answer']) => unknown): void {
    const index = this.#ids.push('') - 1
    this.#open++
    const answer: Submission['answer'] = ({ id }, _isNew, error) => {
      if (error === undefined) this.#ids[index] = id
      else this.#refuse(index, error)
      this.#close()
    }
    try {
      const sent = submit(answer)
      if (sent instanceof Promise) sent.catch((error: unknown) => this.#fail(index, error))
    } catch (error) {
      this.#fail(index, error)
    }
  }

  #fail(index: number, error: unknown): void {
    this.#refuse(index, error)
    this.#close()
  }

  /** Resolves with the ids when all are answered; rejects with the first refusal. */
  async land(): Promise<string[]> {
    if (this.#open > 0) await new Promise<void>((resolve) => (this.#landed = resolve))
    if (this.isRefused) throw this.#refusal
    return this.#ids
  }

  #refuse(index: number, error: unknown): void {
    if (index > this.#refusedAt) return
    this.#refusedAt = index
    this.#refusal = error
  }

  #close(): void {
    this.#open--
    if (this.#open === 0) this.#landed?.()
  }
}
