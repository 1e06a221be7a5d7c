import { createServer } from "node:http";
import { type AddressInfo, connect as open, type Socket } from "node:net";
import { onTestFinished } from "vitest";

/** Starts a proxy that leads every tunnel to one server. Returns its address and the hosts that it was asked for. */
export async function tunnelTo(target: { port: number }, status = 200) {
  const asked: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer();
  server.on("connect", (request, socket: Socket) => {
    asked.push(`${request.url} ${request.headers["x-key"] ?? "no key"}`);
    sockets.add(socket);
    socket.on("error", () => {});
    if (status !== 200) {
      socket.end(`HTTP/1.1 ${status} No\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    const inner = open(target.port, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      inner.pipe(socket).pipe(inner);
    });
    sockets.add(inner);
    inner.on("error", () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}
