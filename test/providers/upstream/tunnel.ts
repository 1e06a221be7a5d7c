import { createServer } from "node:http";
import { connect as open, type Socket } from "node:net";
import { listening } from "../../support/listening.ts";

/** Starts a proxy that leads every tunnel to one server. Returns its address and the hosts that it was asked for. */
export async function tunnelTo(target: { port: number }, status = 200) {
  const asked: string[] = [];
  const server = createServer();
  server.on("connect", (request, socket: Socket) => {
    asked.push(`${request.url} ${request.headers["x-key"] ?? "no key"}`);
    if (status !== 200) {
      socket.end(`HTTP/1.1 ${status} No\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    const inner = open(target.port, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      inner.pipe(socket).pipe(inner);
    });
    inner.on("error", () => {});
    socket.on("close", () => inner.destroy());
  });
  return { url: await listening(server), asked };
}
