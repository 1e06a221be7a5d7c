import type { RequestHandler } from "express";

/**
 * One handler that runs others in their order, as Express does. Each passes a request on by `next`, and ends its way by an
 * error: thrown, as a rejection, or given to `next`. Not the router of Express: it looks at the path before each handler,
 * which takes longer than to read a batch.
 */
export function inTurn(handlers: readonly RequestHandler[]): RequestHandler {
  return (request, response, next) => {
    let at = 0;
    const pass = (error?: unknown) => {
      const handler = error ? undefined : handlers[at++];
      if (handler === undefined) return next(error);
      try {
        const done: unknown = handler(request, response, pass);
        if (done instanceof Promise) done.catch(next);
      } catch (thrown) {
        next(thrown);
      }
    };
    pass();
  };
}
