import { once } from "node:events";
import type { AddressInfo, Server, Socket } from "node:net";

/** A server on a free port of loopback. */
export interface ListeningServer {
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
