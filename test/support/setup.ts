import { afterAll, beforeAll, expect } from "vitest";
import { takeFindings, watchText } from "./secrets.ts";

/** What a test file must not leave behind. Sockets and pipes of the test runner itself are no such handles. */
const WATCHED = ["TCPServerWrap", "TCPSocketWrap", "Timeout", "ChildProcess", "MessagePort", "Worker"];
const PATIENCE_MS = 3000;

let before = new Map<string, number>();

beforeAll(() => {
  before = countHandles();
});

afterAll(async () => {
  const deadline = Date.now() + PATIENCE_MS;
  while (leftBehind().length > 0 && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  expect(leftBehind(), "handles that this file left open").toEqual([]);
  expect(takeFindings(), "secrets that were written or told").toEqual([]);
});

/** Larger answers are images and ZIPs, whose sources are searched as files. */
const MAX_WATCHED_BYTES = 1024 * 1024;

// Every answer that a test or the client reads is searched: its headers at once, its body when it is read.
const realFetch = globalThis.fetch;
globalThis.fetch = async (...request) => {
  const answer = await realFetch(...request);
  const headers = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  watchText(headers, `headers of an answer ${answer.status}`);
  return answer;
};
const { text, arrayBuffer } = Response.prototype;
Response.prototype.text = async function (this: Response) {
  const body = await text.call(this);
  if (body.length <= MAX_WATCHED_BYTES) watchText(body, `an answer ${this.status}`);
  return body;
};
Response.prototype.arrayBuffer = async function (this: Response) {
  const body = await arrayBuffer.call(this);
  if (body.byteLength <= MAX_WATCHED_BYTES) watchText(new Uint8Array(body), `an answer ${this.status}`);
  return body;
};
Response.prototype.json = async function (this: Response) {
  return JSON.parse(await this.text());
};

function leftBehind(): string[] {
  return [...countHandles()].filter(([type, count]) => count > (before.get(type) ?? 0)).map(([type]) => type);
}

function countHandles(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const type of process.getActiveResourcesInfo()) {
    if (WATCHED.includes(type)) counts.set(type, (counts.get(type) ?? 0) + 1);
  }
  return counts;
}
