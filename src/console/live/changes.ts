/** A change at the service, as far as the key may know it. */
export type Change =
  /** Anything: read again what is shown. */
  | { kind: "all" }
  /** `items` are ids; null when very many changed. */
  | { kind: "batch"; id: string; items: string[] | null }
  | { kind: "deleted"; id: string }
  | { kind: "account" };

const listeners = new Set<(change: Change) => void>();

/** Returns the function that ends the subscription. */
export function onChange(listener: (change: Change) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function tellChange(change: Change): void {
  for (const listener of listeners) listener(change);
}
