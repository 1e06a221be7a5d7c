import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { draftsBelow } from "../../support/drafts.ts";
import { exchange, requestText } from "../../support/raw-http.ts";
import { refusalOf } from "../../support/realtime.ts";
import { startTestService, type TestService } from "../../support/service.ts";
import { ask, fileOf } from "../../support/uploads.ts";

const PATH = "/upload/v1beta/files?uploadType=multipart";
const serve = () => startTestService({ workers: false });

/** Parts with their headers, as `multipart/related`. */
function related(service: TestService, parts: readonly string[], end = "\r\n--b--\r\n", prefix = "/v1beta") {
  return ask(service, PATH.replace("/v1beta", prefix), {
    method: "POST",
    headers: { "content-type": "multipart/related; boundary=b" },
    body: parts.map((part) => `\r\n--b\r\n${part}`).join("") + end,
  });
}

function form(service: TestService, fields: Record<string, Blob | string>) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  return ask(service, PATH, { method: "POST", body });
}

const downloaded = async (service: TestService, name: string) =>
  Buffer.from(await (await ask(service, `/v1beta/${name}:download`)).arrayBuffer());

const json = (value: object) =>
  `Content-Type: application/json; charset=UTF-8\r\n\r\n${JSON.stringify(value)}`;

describe("a multipart upload", () => {
  it("takes the description and the bytes as related parts", async () => {
    const service = await serve();
    for (const prefix of ["/v1beta", "/v1"]) {
      const parts = [
        json({ file: { display_name: "fox" } }),
        "Content-Type: text/plain\r\n\r\nred\r\nfox--b",
      ];
      const answer = await related(service, parts, undefined, prefix);
      expect(answer.headers.get("x-goog-upload-status")).toBe("final");
      const file = await fileOf(answer);
      expect(file).toMatchObject({ displayName: "fox", mimeType: "text/plain", sizeBytes: "11" });
      expect(String(await downloaded(service, file.name))).toBe("red\r\nfox--b");
    }
  });

  it("takes a form with the fields metadata and file, in any order, or with a file alone", async () => {
    const service = await serve();
    const bytes = Buffer.alloc(3_000_000, "red fox\r\n--");
    const file = new File([bytes], "fox.bin", { type: "image/png" });
    const metadata = new Blob([JSON.stringify({ file: { displayName: "fox", mimeType: "image/webp" } })]);
    for (const [fields, facts] of [
      [
        { metadata, file },
        { displayName: "fox", mimeType: "image/webp" },
      ],
      [
        { other: "dropped", file, metadata },
        { displayName: "fox", mimeType: "image/webp" },
      ],
      [{ file }, { mimeType: "image/png" }],
    ] as const) {
      const made = await fileOf(await form(service, fields));
      expect(made).toMatchObject(facts);
      expect((await downloaded(service, made.name)).equals(bytes)).toBe(true);
    }
  });

  it("whose connection breaks leaves nothing", async () => {
    const service = await serve();
    const head = requestText("POST", PATH, [
      ["x-vendorx-api-key", service.credentials.api_key],
      ["content-type", "multipart/related; boundary=b"],
      ["content-length", "1000000"],
    ]);
    const { port } = new URL(service.url);
    const socket = connect(Number(port), "127.0.0.1");
    socket.write(`${head}--b\r\n${json({})}\r\n--b\r\nContent-Type: text/plain\r\n\r\n${"x".repeat(5000)}`);
    const drafts = () => draftsBelow(service.data);
    await expect.poll(drafts).toHaveLength(1);
    socket.destroy();
    await expect.poll(drafts).toEqual([]);
  });

  it("that cannot be read is refused and leaves nothing", async () => {
    const service = await serve();
    const bytes = "Content-Type: text/plain\r\n\r\nred fox";
    for (const [field, parts, end] of [
      ["body", [json({})], undefined],
      ["body", [], undefined],
      ["body", [json({}), bytes], ""],
      ["body", [json({}), "Content-Ty"], ""],
      ["body", [json({}), bytes, bytes], undefined],
      ["body", [json({}), "Content-Type: text/plain\r\n\r\n"], undefined],
      ["body", [json({ file: { displayName: "x".repeat(70_000) } }), bytes], undefined],
      ["file.name", [json({ file: { name: "No" } }), bytes], undefined],
    ] as const) {
      const answer = await related(service, parts, end);
      expect(answer.headers.get("x-goog-upload-status")).toBe("cancelled");
      expect(await refusalOf(answer)).toEqual([400, "INVALID_ARGUMENT", field]);
    }
    const large = requestText("POST", PATH, [
      ["x-vendorx-api-key", service.credentials.api_key],
      ["content-type", "multipart/related; boundary=b"],
      ["content-length", String(3 * 1024 ** 3)],
      ["expect", "100-continue"],
    ]);
    expect((await exchange(service.url, large))?.status).toBe(413);
    const headers = { "content-type": "multipart/related" };
    const bare = await ask(service, PATH, { method: "POST", headers, body: "x" });
    expect(await refusalOf(bare)).toEqual([400, "INVALID_ARGUMENT", "Content-Type"]);
    expect(await (await ask(service, "/v1beta/files")).json()).toEqual({ files: [] });
    // None of them is open any more: sixteen more fit.
    for (let i = 0; i < 20; i++) expect((await related(service, [json({}), bytes])).status).toBe(200);
  });
});
