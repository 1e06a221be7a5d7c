import { once } from "node:events";
import type { AddressInfo, Server, Socket } from "node:net";

/** A server on a free port of loopback. */
interface ListeningServer {
  url: string;
  port: number;
  /** Breaks off its connections. */
  breakOff(): void;
  /** Ends the server and its connections. */
  close(): Promise<void>;
}

/** Lets a server listen on a free port. */
export async function listen(server: Server): Promise<ListeningServer> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => sockets.delete(socket));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const breakOff = () => {
    for (const socket of sockets) socket.destroy();
  };
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      breakOff();
    });
  return { url: `http://127.0.0.1:${port}`, port, breakOff, close };
}

/**
 * Ends a connection so that the other side sees ECONNRESET, not an end. Node 20 loses the handle of a socket that is reset
 * while its own end is being sent, so such a socket is only closed.
 */
export function resetConnection(socket: Socket): void {
  if (socket.writableEnded && !socket.writableFinished) socket.destroy();
  else socket.resetAndDestroy();
}
