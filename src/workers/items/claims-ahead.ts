/** How much the newest duration counts against the earlier ones. */
const NEWEST = 0.2;
/**
 * A claim waits for the one before it, and a slow one takes twice as long as others: four claims ahead would be enough. Sixteen
 * let one claim take several items, which takes hardly longer than taking one.
 */
const CLAIMS = 16;

/**
 * Decides how many items to claim before there is a slot for them. Without such items, each free slot would wait until the
 * next claim is durable. The number is that of the items that begin during sixteen claims. It is 0 for a provider with
 * few slots that takes much longer than a claim.
 */
export class ClaimsAhead {
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
   * Returns the number of items to claim ahead: at most one for each of the `slots`, and 0 before the first answer.
   * `stillMs`: for how long no slot has become free. The running requests take at least that long.
   */
  most(slots: number, stillMs: number): number {
    if (this.#requestMs === null) return 0;
    const requestMs = Math.max(1, this.#requestMs, stillMs);
    return Math.min(slots, Math.round((CLAIMS * slots * this.#claimMs) / requestMs));
  }
}
