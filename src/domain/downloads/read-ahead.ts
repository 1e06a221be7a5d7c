/** How many are begun before they are needed, and how many bytes they may have together. */
const AHEAD = 4;
const AHEAD_BYTES = 16 * 1024 * 1024;

/**
 * Begins to read images before they are needed, for stores that are behind a network: up to four of at most 16 MiB
 * together, beside the one in use. Yields what `read` returns for each, in order. `drop` gets what was read and not
 * yielded when the caller leaves early.
 */
export async function* readAhead<T, R>(
  items: Iterable<T>,
  { sizeOf, read, drop }: { sizeOf(item: T): number; read(item: T): Promise<R>; drop?(result: R): unknown },
): AsyncGenerator<R> {
  const source = items[Symbol.iterator]();
  /** The first one is in use next. */
  const begun: { result: Promise<R>; sizeBytes: number }[] = [];
  let next = source.next();
  const begin = () => {
    for (; !next.done; next = source.next()) {
      const sizeBytes = sizeOf(next.value);
      const bytes = begun.slice(1).reduce((sum, one) => sum + one.sizeBytes, sizeBytes);
      if (begun.length > AHEAD || (begun.length > 0 && bytes > AHEAD_BYTES)) return;
      const result = read(next.value);
      result.catch(() => {});
      begun.push({ result, sizeBytes });
    }
  };
  try {
    for (;;) {
      begin();
      const first = begun.shift();
      if (first === undefined) return;
      yield await first.result;
    }
  } finally {
    for (const { result } of begun) result.then(drop).catch(() => {});
  }
}
