// Asks for the addresses of `workerData` in turns, one each 20 ms, on a thread of its own, and says on any message how long
// the answers of each took.
import { Agent, request } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";

const EVERY_MS = 20;
let isOver = false;
parentPort.once("message", () => {
  isOver = true;
});
const watched = await Promise.all(workerData.map(watch));
parentPort.postMessage(watched);

async function watch(url) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const times = [];
  while (!isOver) {
    const begin = performance.now();
    await ask(agent, url);
    times.push(performance.now() - begin);
    await pause(EVERY_MS);
  }
  agent.destroy();
  times.sort((a, b) => a - b);
  const at = (share) => Math.round((times[Math.floor(times.length * share)] ?? times.at(-1)) * 10) / 10;
  return { asked: times.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
}

function ask(agent, url) {
  return new Promise((done, fail) => {
    request(url, { agent }, (answer) => {
      answer.resume();
      answer.once("end", done);
    })
      .once("error", fail)
      .end();
  });
}
