import { expect, it, onTestFinished } from "vitest";
import type { BlobDraft } from "../../../src/domain/ports/blob-store.ts";
import { UpstreamHttp } from "../../../src/providers/upstream/http.ts";
import { jsonBody } from "../../../src/providers/upstream/request-body.ts";
import { depsWith, never, type Reply, scriptedServer } from "./scripted-server.ts";

const MIB = 2 ** 20;
const POST = { method: "POST", path: "/make", headers: {}, body: jsonBody({ a: 1 }) } as const;

/** A disk that takes its time for each piece, so that the answer has to wait. */
function slowDisk() {
  const disk = { bytes: 0, draft: () => draft };
  const write = async (piece: Uint8Array) => {
    disk.bytes += piece.length;
    await new Promise((resolve) => setTimeout(resolve, 1));
  };
  const draft = { write, discard: async () => {} } as unknown as BlobDraft;
  return disk;
}

/** Sends a body with this head, and closes the connection directly behind it. */
const closingBehind =
  (head: (bytes: number) => string, body: Buffer): Reply =>
  (_seen, _answer, socket) =>
    socket.end(Buffer.concat([Buffer.from(`${head(body.length)}\r\n\r\n`), body]));

const HEADS: [string, (bytes: number) => string][] = [
  ["HTTP/1.0", () => "HTTP/1.0 200 OK\r\ncontent-type: application/json"],
  ["Connection: close", () => "HTTP/1.1 200 OK\r\nconnection: close"],
  [
    "Connection: close and a length",
    (bytes) => `HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ${bytes}`,
  ],
];

it.each(HEADS)(
  "[UPSTREAM-5] a large image is read to its end by an upstream that closes behind it: %s",
  async (_, head) => {
    const image = Buffer.alloc(24 * MIB, "fox").toString("base64");
    const server = await scriptedServer(closingBehind(head, Buffer.from(JSON.stringify({ image }))));
    const disk = slowDisk();
    const http = new UpstreamHttp(
      { name: "painter", baseUrl: server.url, concurrency: 1 },
      { ...depsWith(), draft: disk.draft },
    );
    onTestFinished(() => http.close());
    let bytes = 0;
    const read = ({ value, decode }: { value: unknown; decode(text: string): { length: number } }) => {
      bytes = decode((value as { image: string }).image).length;
      return { images: [], modelVersion: null };
    };
    await http.images(POST, never, {}, read);
    expect([bytes, disk.bytes]).toEqual([24 * MIB, 24 * MIB]);
  },
);

it.each(HEADS)(
  "[UPSTREAM-5] a file of results is read to its end while its reader takes its time: %s",
  async (_, head) => {
    const body = Buffer.alloc(8 * MIB, "x");
    const server = await scriptedServer(closingBehind(head, body));
    const http = new UpstreamHttp({ name: "painter", baseUrl: server.url, concurrency: 1 }, depsWith());
    onTestFinished(() => http.close());
    const answer = await http.open({ path: "/results", headers: {} }, never);
    let bytes = 0;
    for await (const piece of answer.body) {
      bytes += piece.length;
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(bytes).toBe(body.length);
  },
);
