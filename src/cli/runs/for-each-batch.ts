import { ImgbatchError } from "../../contract/errors.ts";

/**
 * Does something with each batch, and goes on when one of them fails. Then the first error is thrown, with what was
 * done in its details.
 */
export async function forEachBatch<T>(
  ids: readonly string[],
  work: (id: string) => Promise<T>,
  describe: (result: T) => string,
): Promise<T[]> {
  const done: T[] = [];
  const errors: ImgbatchError[] = [];
  for (const id of ids) {
    try {
      done.push(await work(id));
    } catch (error) {
      const mayGoOn = error instanceof ImgbatchError && error.httpStatus >= 400 && error.httpStatus !== 401;
      if (!mayGoOn || ids.length === 1) throw error;
      errors.push(error);
    }
  }
  const [first] = errors;
  if (first === undefined) return done;
  const details = [...errors.slice(1).map((error) => error.message), ...done.map(describe)];
  throw new ImgbatchError(first.code, first.message, {
    param: first.param,
    requestId: first.requestId,
    httpStatus: first.httpStatus,
    cause: first,
    details,
  });
}
