import type { Readable } from "node:stream";
import type { Dispatcher } from "undici";
import type { Engine } from "./transport.ts";

/** Sends over these connections, which may lead through a proxy. The connections must set no limits of time but the one of connecting. */
export function overConnections(connections: Dispatcher): Engine {
  return async ({ url, method, headers, body, signal, onConnected }) => {
    const answer = await connections.compose(beforeFirstByte(onConnected)).request({
      origin: url.origin,
      path: url.pathname + url.search,
      method: method as Dispatcher.HttpMethod,
      headers,
      body: body as Readable | Buffer | null,
      signal,
    });
    // Nobody may listen any more when the transfer ends.
    answer.body.on("error", () => {});
    return {
      status: answer.statusCode,
      headers: answer.headers,
      body: answer.body,
      destroy: () => answer.body.destroy(),
    };
  };
}

/** Calls `leave` when a request has its connection, before anything is written to it. */
function beforeFirstByte(leave: () => void): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) => (options, handler) =>
    dispatch(options, {
      onRequestStart: (controller, context) => {
        leave();
        handler.onRequestStart?.(controller, context);
      },
      onRequestUpgrade: (...args) => handler.onRequestUpgrade?.(...args),
      onResponseStart: (...args) => handler.onResponseStart?.(...args),
      onResponseData: (...args) => handler.onResponseData?.(...args),
      onResponseEnd: (...args) => handler.onResponseEnd?.(...args),
      onResponseError: (...args) => handler.onResponseError?.(...args),
    });
}
