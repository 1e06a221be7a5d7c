import { Agent, request } from "node:http";
import { buffer } from "node:stream/consumers";
import { timed } from "./measure.mjs";

/**
 * Sends requests as the service does for items without references, reads the answers and drops them: the least that a
 * program can do here. Returns how long it took, in ms.
 */
export async function runBareClient({ baseUrl, path, images, concurrency }) {
  const agent = new Agent({ keepAlive: true, maxSockets: concurrency });
  const headers = { "content-type": "application/json" };
  let next = 0;
  const sendAll = async () => {
    while (next < images) {
      const text = `picture ${next++}`;
      const body = JSON.stringify({ contents: [{ role: "user", parts: [{ text }] }] });
      await new Promise((resolve, reject) => {
        const sent = request(baseUrl + path, { agent, method: "POST", headers }, (answer) => {
          buffer(answer).then(resolve, reject);
        });
        sent.once("error", reject).end(body);
      });
    }
  };
  try {
    return await timed(() => Promise.all(Array.from({ length: concurrency }, sendAll)));
  } finally {
    agent.destroy();
  }
}
