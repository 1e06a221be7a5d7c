import type { Server } from "node:net";
import { onTestFinished } from "vitest";
import { listen } from "./listen.ts";

/** Lets a server listen on a free port. Returns its address. It ends with the test, and so do its connections. */
export async function listening(server: Server): Promise<string> {
  const { url, close } = await listen(server);
  onTestFinished(close);
  return url;
}
