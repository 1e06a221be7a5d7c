import type { RequestHandler } from "express";

/**
 * Returns one handler that runs others in order, as Express does. Each passes the request on by `next`. An error stops
 * them, whether it is thrown, rejected or given to `next`; a rejection without a reason counts as one. The router of
 * Express is not used: it compares the path before each handler, which takes longer than reading a batch.
 */
export function inOrder(handlers: readonly RequestHandler[]): RequestHandler {
  return (request, response, next) => {
    let at = 0;
    // Without an error, `next` would pass the request on.
    const fail = (reason: unknown) => next(reason || new Error(`a handler failed with ${String(reason)}`));
    const pass = (error?: unknown) => {
      const handler = error ? undefined : handlers[at++];
      if (handler === undefined) return next(error);
      try {
        const done: unknown = handler(request, response, pass);
        if (done instanceof Promise) done.catch(fail);
      } catch (thrown) {
        fail(thrown);
      }
    };
    pass();
  };
}
