import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

/** Lets a server listen on a free port. Returns its address. It ends with the test, and so do its connections. */
export async function listening(server: Server): Promise<string> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
