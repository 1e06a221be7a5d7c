/** A promise that a test opens (or breaks) from outside. */
export interface Gate<T> {
  promise: Promise<T>;
  open(value: T): void;
  fail(reason: unknown): void;
}

export function gate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => {};
  let fail: (reason: unknown) => void = () => {};
  const promise = new Promise<T>((resolve, reject) => {
    open = resolve;
    fail = reject;
  });
  return { promise, open, fail };
}
