// Calls client libraries on request, in a process of its own, because some need another Node than the tests run with.
// A line in is a call, `{ id, library, options, method, args }`, a line out is its answer with the same `id`; both are JSON.
import { createInterface } from "node:readline";
import { openClient } from "./client.mjs";

const clients = new Map();

for await (const line of createInterface({ input: process.stdin })) void answer(JSON.parse(line));

async function answer({ id, library, options, method, args }) {
  const key = JSON.stringify([library, options]);
  if (!clients.has(key)) clients.set(key, openClient(library, options));
  const call = await clients.get(key);
  process.stdout.write(`${JSON.stringify({ id, ...(await call(method, args)) })}\n`);
}
