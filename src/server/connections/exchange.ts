import type { Socket } from "node:net";
import type { Response } from "express";

/** Called at the end of an exchange. `isWhole`: the whole response was sent. */
type EndListener = (isWhole: boolean) => void;

/** One connection, as the requests see it that came over it. */
class Connection {
  readonly #socket: Socket;
  /** Responses whose exchange has not ended. With pipelining there are several. */
  readonly #open = new Map<Response, EndListener[]>();
  #hadKey = false;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.once("close", () => {
      for (const response of [...this.#open.keys()]) this.#end(response, false);
    });
  }

  /** No request is under way. */
  get isIdle(): boolean {
    return this.#open.size === 0;
  }

  /** A request came with a valid key. */
  get hasKey(): boolean {
    return this.#hadKey || [...this.#open.keys()].some(showsKey);
  }

  onEnded(response: Response, listener: EndListener): void {
    const listeners = this.#open.get(response);
    if (listeners) {
      listeners.push(listener);
      return;
    }
    this.#open.set(response, [listener]);
    let isWhole = false;
    // Node also finishes a response whose connection was cut in the middle.
    response.once("finish", () => {
      isWhole = !this.#socket.destroyed;
    });
    response.once("close", () => this.#end(response, isWhole));
  }

  #end(response: Response, isWhole: boolean): void {
    const listeners = this.#open.get(response) ?? [];
    this.#open.delete(response);
    this.#hadKey ||= showsKey(response);
    for (const listener of listeners) listener(isWhole);
  }
}

const showsKey = (response: Response) => response.locals.key !== undefined;

const connections = new WeakMap<Socket, Connection>();

export function connectionOf(socket: Socket): Connection {
  const known = connections.get(socket);
  if (known) return known;
  const connection = new Connection(socket);
  connections.set(socket, connection);
  return connection;
}

/**
 * Calls the listener once when an exchange has ended: its response was sent, or its connection is closed; at once when it
 * is closed already. Node reports the end of a connection only to the response that is being sent, not to those that wait
 * behind it (pipelining, RFC 9112, section 9.3.2).
 */
export function onEnded(response: Response, listener: EndListener): void {
  const { socket } = response.req;
  if (response.closed || socket.closed) listener(false);
  else connectionOf(socket).onEnded(response, listener);
}

/** A signal that aborts when the caller goes away before it has the whole response. */
export function goneSignal(response: Response, reason?: Error): AbortSignal {
  const gone = new AbortController();
  onEnded(response, (isWhole) => {
    if (!isWhole) gone.abort(reason);
  });
  return gone.signal;
}
