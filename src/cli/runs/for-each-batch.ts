import { ImgbatchError } from "../../contract/errors.ts";

/**
 * Runs work for each batch, and continues when one fails. Throws the first error at the end; its details list the other
 * errors and the results.
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
