/** How much the newest duration counts against the earlier ones. */
const NEWEST = 0.2;
/** A claim waits for the one before it, and a slow one takes twice as long as others. */
const CLAIMS = 4;

/**
 * Decides how many items to claim before there is a slot for them. Without them, each slot would wait after an answer until
 * the next claim is durable. They are as many as begin during four claims. At a provider that is slow against a claim,
 * that is none.
 */
export class ClaimPace {
  #claimMs = 0;
  #requestMs: number | null = null;

  /** Notes how long a claim took until its items could begin, in ms. */
  claimTook(ms: number): void {
    this.#claimMs += NEWEST * (ms - this.#claimMs);
  }

  /** Notes how long a request that succeeded had a slot, in ms. */
  requestTook(ms: number): void {
    this.#requestMs = this.#requestMs === null ? ms : this.#requestMs + NEWEST * (ms - this.#requestMs);
  }

  /**
   * Returns the number of items to claim ahead of `slots`: at most one for each. 0 before the first answer. `stillMs`: how
   * long no slot has got free; the requests that run take at least as long.
   */
  ahead(slots: number, stillMs: number): number {
    if (this.#requestMs === null) return 0;
    const requestMs = Math.max(1, this.#requestMs, stillMs);
    return Math.min(slots, Math.round((CLAIMS * slots * this.#claimMs) / requestMs));
  }
}
