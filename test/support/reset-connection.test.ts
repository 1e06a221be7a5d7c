import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { expect, it } from "vitest";
import { resetConnection } from "./reset-connection.ts";

it("[FAKE-8] a reset leaves no handle, also when the end of the connection is under way", async () => {
  const before = sockets();
  for (const isEnding of [false, true]) {
    const server = createServer();
    await once(server.listen(0, "127.0.0.1"), "listening");
    const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
    const errors: string[] = [];
    client.on("error", (error: NodeJS.ErrnoException) => errors.push(error.code ?? ""));
    const [[near]] = (await Promise.all([once(server, "connection"), once(client, "connect")])) as [
      [Socket],
      [],
    ];
    near.on("error", (error: NodeJS.ErrnoException) => errors.push(error.code ?? ""));
    let closed = 0;
    for (const socket of [near, client.resume()]) socket.on("close", () => closed++);
    if (isEnding) near.end();
    resetConnection(near);
    await expect.poll(() => closed).toBe(2);
    server.close();
    await expect.poll(sockets).toBe(before);
    expect(errors).toEqual(isEnding ? [] : ["ECONNRESET"]);
  }
});

function sockets(): number {
  return process.getActiveResourcesInfo().filter((type) => type === "TCPSocketWrap").length;
}
