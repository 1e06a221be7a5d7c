// An upstream of the vendor's own form. It answers every request with the same picture after a fixed time. Runs in a
// process of its own: `node upstream-server.mjs LATENCY_MS [REFUSED_EVERY]`; prints its port. Of each REFUSED_EVERY requests it
// refuses the last: with 429 and 500 in turns. To any message it answers how many
// answers it has sent, and how long they were waited for together, in ms: timers are late, by a millisecond or more on a busy machine.
import { createServer } from "node:net";
import sharp from "sharp";

const latencyMs = Number(process.argv[2]);
const refusedEvery = Number(process.argv[3] ?? Number.POSITIVE_INFINITY);
const gradient = `<svg xmlns="http://www.w3.org/2000/svg" width="1024" height="1024"><defs><radialGradient id="g">
  <stop offset="0" stop-color="#d64"/><stop offset="1" stop-color="#246"/></radialGradient></defs>
  <rect width="1024" height="1024" fill="url(#g)"/></svg>`;
const png = await sharp(Buffer.from(gradient)).png().toBuffer();
const parts = [{ inlineData: { mimeType: "image/png", data: png.toString("base64") } }];
const body = JSON.stringify({
  candidates: [{ content: { parts }, finishReason: "STOP" }],
  modelVersion: "bench",
});

// Whatever this process does is time that the service is not given: so it reads of a request no more than where it ends.
const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`;
const answer = Buffer.from(head + body);
const refusal = (status, headers) => {
  const error = JSON.stringify({ error: { code: status, message: "Refused by the benchmark." } });
  const lines = ["content-type: application/json", `content-length: ${error.length}`, ...headers];
  return `HTTP/1.1 ${status} Refused\r\n${lines.join("\r\n")}\r\n\r\n${error}`;
};
const refusals = [refusal(429, ["retry-after: 1"]), refusal(500, [])];
let [requests, waitedMs, answers] = [0, 0, 0];
process.on("message", () => process.send({ waitedMs, answers }));
const server = createServer({ noDelay: true }, (socket) => {
  let got = "";
  socket.on("error", () => {});
  socket.on("data", (bytes) => {
    got += bytes.toString("latin1");
    const headBytes = got.indexOf("\r\n\r\n") + 4;
    const bodyBytes = Number(/content-length: *(\d+)/i.exec(got)?.[1] ?? 0);
    if (headBytes < 4 || got.length < headBytes + bodyBytes) return;
    got = "";
    const startMs = performance.now();
    requests++;
    const isRefused = requests % refusedEvery === 0;
    const refused = refusals[(requests / refusedEvery) % 2];
    setTimeout(() => {
      if (isRefused) return socket.write(refused);
      waitedMs += performance.now() - startMs;
      answers++;
      socket.write(answer);
    }, latencyMs);
  });
});
server.listen(0, "127.0.0.1", () => process.stdout.write(`${server.address().port}\n`));
