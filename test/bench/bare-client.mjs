import { Agent } from "undici";
import { timed } from "./measure.mjs";

/**
 * Sends requests as the service does for items without references, reads the answers and drops them: the least that a
 * program can do here. Returns how long it took, in ms.
 */
export async function runBareClient({ baseUrl, path, images, concurrency }) {
  const agent = new Agent({ connections: concurrency, headersTimeout: 0, bodyTimeout: 0 });
  const headers = { "content-type": "application/json" };
  let next = 0;
  const sendAll = async () => {
    while (next < images) {
      const text = `picture ${next++}`;
      const body = JSON.stringify({ contents: [{ role: "user", parts: [{ text }] }] });
      const answer = await agent.request({ origin: baseUrl, path, method: "POST", headers, body });
      await answer.body.arrayBuffer();
    }
  };
  try {
    return await timed(() => Promise.all(Array.from({ length: concurrency }, sendAll)));
  } finally {
    await agent.close();
  }
}
