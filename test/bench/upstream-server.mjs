// An upstream of the vendor's own form. It answers every request with the same picture after a fixed time. Runs in a
// process of its own: `node upstream-server.mjs LATENCY_MS`; prints its port.
import { createServer } from "node:http";
import sharp from "sharp";

const latencyMs = Number(process.argv[2]);
const gradient = `<svg xmlns="http://www.w3.org/2000/svg" width="1024" height="1024"><defs><radialGradient id="g">
  <stop offset="0" stop-color="#d64"/><stop offset="1" stop-color="#246"/></radialGradient></defs>
  <rect width="1024" height="1024" fill="url(#g)"/></svg>`;
const png = await sharp(Buffer.from(gradient)).png().toBuffer();
const parts = [{ inlineData: { mimeType: "image/png", data: png.toString("base64") } }];
const body = JSON.stringify({ candidates: [{ content: { parts }, finishReason: "STOP" }], modelVersion: "bench" });

const server = createServer((request, response) => {
  request.resume();
  request.on("end", () =>
    setTimeout(() => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(body);
    }, latencyMs),
  );
});
server.listen(0, "127.0.0.1", () => process.stdout.write(`${server.address().port}\n`));
