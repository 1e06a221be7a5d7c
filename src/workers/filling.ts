/**
 * Runs work that fills free slots, one run at a time. A call during a run makes it look once more, because the run may have
 * missed what the call is about.
 */
export class Filling {
  readonly #work: () => Promise<void>;
  readonly #stopping: AbortSignal;
  #running: Promise<void> | null = null;
  #again = false;

  constructor(work: () => Promise<void>, stopping: AbortSignal) {
    this.#work = work;
    this.#stopping = stopping;
  }

  start(): void {
    this.#again = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
      if (this.#again && !this.#stopping.aborted) this.start();
    });
  }

  async idle(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#again) {
      this.#again = false;
      await this.#work();
    }
  }
}
