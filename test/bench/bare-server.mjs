// A server of nothing but `node:http`, which answers every request with the JSON text that it was given. Prints its URL.
//   node bare-server.mjs TEXT
import { createServer } from "node:http";

const value = JSON.parse(process.argv[2]);
const server = createServer((_request, response) => {
  const text = JSON.stringify(value);
  response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  response.end(text);
});
server.listen(0, "127.0.0.1", () => process.stdout.write(`http://127.0.0.1:${server.address().port}\n`));
