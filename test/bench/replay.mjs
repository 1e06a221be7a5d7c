import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { Agent, createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import sharp from "sharp";
import { median } from "./measure.mjs";

const BIN = resolve(import.meta.dirname, "../../bin/imgbatch.cjs");
const MODEL = "gemini-3-pro-image";
const PATH = `/v1beta/models/${MODEL}:generateContent`;
const BODY = JSON.stringify({
  contents: [{ role: "user", parts: [{ text: "a red fox" }] }],
  generationConfig: { responseModalities: ["TEXT", "IMAGE"] },
});
const CONNECTIONS = 8;
const REQUESTS = 200;
const ROUNDS = 3;
/** Tells the service's address, and ends when its standard input does. */
const WAIT = `const { env, stdin } = process;
  console.log(env.GOOGLE_GEMINI_BASE_URL + " " + env.GEMINI_API_KEY);
  stdin.resume().on("end", () => process.exit());`;

/**
 * Recorded pictures at eight connections, beside a plain server of `node` with the same bytes: the two take turns. One picture
 * of 1024 x 1024 is recorded from that server first.
 */
export async function measureReplay() {
  const directory = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const stub = await startStub();
  try {
    const provider = { preset: "google", baseUrl: stub.url, keyHeader: "x-goog-api-key" };
    const config = join(directory, "team.json");
    await writeFile(config, JSON.stringify({ providers: [provider], vendor: { preset: "google" } }));
    const flags = ["--config", config, "--replay", join(directory, "pictures")];
    const recorder = await startExec([...flags, "--record", "--max-cost", "1"]);
    await ask(recorder, new Agent());
    await recorder.stop();
    if ((await readdir(join(directory, "pictures"))).length !== 2) throw new Error("nothing was recorded");
    const replay = await startExec(flags);
    const [ours, plain] = [[], []];
    try {
      for (let round = 0; round < ROUNDS; round++) {
        ours.push(...(await askMany(replay)));
        plain.push(...(await askMany(stub)));
      }
    } finally {
      await replay.stop();
    }
    const [oursMs, plainMs] = [median(ours), median(plain)];
    const facts = { replay: `${oursMs.toFixed(1)} ms`, "node:http": `${plainMs.toFixed(1)} ms` };
    // 15 ms are enough, however quick the plain server is.
    const goal = { atMost: Math.max(2.5, 15 / plainMs) };
    return [{ name: `replay at ${CONNECTIONS} connections`, value: oursMs / plainMs, goal, facts }];
  } finally {
    await stub.stop();
    await rm(directory, { recursive: true, force: true });
  }
}

async function startStub() {
  const noise = {
    create: { width: 1024, height: 1024, channels: 3, noise: { type: "gaussian", mean: 128, sigma: 8 } },
  };
  const data = (await sharp(noise).jpeg().toBuffer()).toString("base64");
  const parts = [{ inlineData: { mimeType: "image/jpeg", data } }];
  const answer = JSON.stringify({
    candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }],
  });
  const server = createServer((asked, response) => {
    asked
      .resume()
      .on("end", () => response.writeHead(200, { "content-type": "application/json" }).end(answer));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const stop = async () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, key: "", stop };
}

async function startExec(flags) {
  const args = [BIN, "exec", ...flags, "--", process.execPath, "-e", WAIT];
  const env = { ...process.env, GEMINI_API_KEY: "AIza-a-key-of-the-benchmark" };
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"], env });
  const [line] = await once(createInterface(child.stdout), "line");
  const [url, key] = line.split(" ");
  const stop = async () => {
    child.stdin.end();
    await once(child, "exit");
  };
  return { url, key, stop };
}

/** Returns the ms of each request. */
async function askMany(server) {
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  await ask(server, agent);
  const times = [];
  let left = REQUESTS;
  const connection = async () => {
    while (left-- > 0) times.push(await ask(server, agent));
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, connection));
  agent.destroy();
  return times;
}

async function ask({ url, key }, agent) {
  const startedAt = performance.now();
  const headers = { "content-type": "application/json", "x-goog-api-key": key };
  const asked = request(url + PATH, { method: "POST", agent, headers });
  asked.end(BODY);
  const [answer] = await once(asked, "response");
  answer.resume();
  await once(answer, "end");
  if (answer.statusCode !== 200) throw new Error(`a replay answered ${answer.statusCode}`);
  return performance.now() - startedAt;
}
