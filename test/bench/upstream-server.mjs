// An upstream of the vendor's own form. It answers every request with the same picture after a fixed time. Runs in a
// process of its own: `node upstream-server.mjs LATENCY_MS`; prints its port. To any message it answers how many
// answers it has sent, and how long they were waited for together, in ms: timers are late, by a millisecond or more on a busy machine.
import { createServer } from "node:net";
import sharp from "sharp";

const latencyMs = Number(process.argv[2]);
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
let [waitedMs, answers] = [0, 0];
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
    setTimeout(() => {
      waitedMs += performance.now() - startMs;
      answers++;
      socket.write(answer);
    }, latencyMs);
  });
});
server.listen(0, "127.0.0.1", () => process.stdout.write(`${server.address().port}\n`));
