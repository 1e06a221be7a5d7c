// A server of nothing but `node:http` and one transaction: each request inserts the rows of a batch again, under a new id,
// and is answered with the JSON text that was given. It has the least that a submission can take. Prints its URL.
//   node submission-floor.mjs DATABASE BATCH_ID TEXT
import { createServer } from "node:http";
import { sameRows } from "./same-rows.mjs";

const [file, id, text] = process.argv.slice(2);
const insert = sameRows(file, id);
const value = JSON.parse(text);
const server = createServer(async (request, response) => {
  JSON.parse(Buffer.concat(await request.toArray()).toString());
  insert();
  const answer = JSON.stringify(value);
  response.writeHead(200, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(answer),
  });
  response.end(answer);
});
server.listen(0, "127.0.0.1", () => process.stdout.write(`http://127.0.0.1:${server.address().port}\n`));
