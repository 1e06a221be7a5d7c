import type { Socket } from "node:net";

/**
 * Ends a connection so that the other side sees ECONNRESET, not an end. Node 20 loses the handle of a socket that is reset
 * while its own end is being sent, so such a socket is only closed.
 */
export function resetConnection(socket: Socket): void {
  if (socket.writableEnded && !socket.writableFinished) socket.destroy();
  else socket.resetAndDestroy();
}
