import { Agent, request } from "node:http";
import { buffer } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { timed } from "./measure.mjs";

/** The tries of one request, and the pause before the second one, as the AI SDK has them. */
const TRIES = 3;
const PAUSE_MS = 2000;

/**
 * Sends requests as the service does for items without references, reads the answers and drops them: the least that a
 * program can do here. A refused request is sent again as the AI SDK does it: after the announced pause, else after 2 s, then
 * 4 s. Returns how long it took, in ms.
 */
export async function runBareClient({ baseUrl, path, images, concurrency }) {
  const agent = new Agent({ keepAlive: true, maxSockets: concurrency });
  const headers = { "content-type": "application/json" };
  let next = 0;
  const sendAll = async () => {
    while (next < images) {
      const text = `picture ${next++}`;
      const body = JSON.stringify({ contents: [{ role: "user", parts: [{ text }] }] });
      for (let tries = 1; tries <= TRIES; tries++) {
        const answer = await new Promise((resolve, reject) => {
          const sent = request(baseUrl + path, { agent, method: "POST", headers }, resolve);
          sent.once("error", reject).end(body);
        });
        await buffer(answer);
        if (answer.statusCode === 200) break;
        const announcedMs = 1000 * Number(answer.headers["retry-after"] ?? Number.NaN);
        await setTimeout(Number.isNaN(announcedMs) ? PAUSE_MS * 2 ** (tries - 1) : announcedMs);
      }
    }
  };
  try {
    return await timed(() => Promise.all(Array.from({ length: concurrency }, sendAll)));
  } finally {
    agent.destroy();
  }
}
