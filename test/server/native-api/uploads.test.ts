import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { errorOf, refusalOf } from "../../support/realtime.ts";
import { openBeside, startTestService, type TestService } from "../../support/service.ts";
import { ask, fileOf, listOf, send, start, stateOf, upload, urlOf } from "../../support/uploads.ts";

const serve = (config: object = {}) => startTestService({ workers: false, config });
const hashOf = (text: string) => createHash("sha256").update(text).digest("hex");
const downloaded = async (service: TestService, name: string | undefined) =>
  (await ask(service, `/v1beta/${name}:download?alt=media`)).text();

/** An upload of which a request has brought `red ` and promised more, over a connection that is still open. */
async function begun(command: string, length: number) {
  const service = await serve();
  const { href: url, host, hostname, port, pathname, search } = new URL(await urlOf(await start(service)));
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.write(
    `POST ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${length}\r\n` +
      `X-Goog-Upload-Command: ${command}\r\nX-Goog-Upload-Offset: 0\r\n\r\nred `,
  );
  await expect.poll(async () => stateOf(await send(url, "query"))).toEqual([200, "active", "4"]);
  return { service, url, socket };
}

describe("a resumable upload", () => {
  it("begins with a URL of its own, takes chunks without a key, and ends with the file", async () => {
    const service = await serve();
    const begun = await start(service, {
      body: { file: { display_name: "fox", mimeType: "text/plain", sizeBytes: "7" } },
      headers: { "x-goog-upload-header-content-length": "7" },
    });
    expect(stateOf(begun)).toEqual([200, "active", "0"]);
    const url = await urlOf(begun);
    const { origin } = new URL(url);
    expect(url).toMatch(/\/\/127\.0\.0\.1:\d+\/upload\/v1beta\/files\?upload_id=[0-9a-f]{32}$/);
    expect(origin).toBe(new URL(begun.url).origin);
    const first = await send(url, "upload", 0, "red ");
    expect(stateOf(first)).toEqual([200, "active", "4"]);
    expect(await first.json()).toEqual({});
    expect(stateOf(await send(url, "query"))).toEqual([200, "active", "4"]);
    const last = await send(url, "upload, finalize", 4, "fox");
    expect(stateOf(last)).toEqual([200, "final", "7"]);
    expect(last.headers.get("content-type")).toContain("application/json");
    const file = await fileOf(last);
    expect(file).toEqual({
      name: expect.stringMatching(/^files\/[a-z0-9]{12}$/),
      displayName: "fox",
      mimeType: "text/plain",
      sizeBytes: "7",
      createTime: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      updateTime: file.createTime,
      expirationTime: new Date(Date.parse(file.createTime ?? "") + 48 * 3_600_000).toISOString(),
      sha256Hash: Buffer.from(hashOf("red fox")).toString("base64"),
      uri: `${origin}/v1beta/${file.name}`,
      state: "ACTIVE",
      source: "UPLOADED",
    });
    expect(await downloaded(service, file.name)).toBe("red fox");
  });

  it("needs neither a body nor a length at its start, and takes the JSON of the vendor's guide", async () => {
    const service = await serve();
    const bare = await urlOf(
      await start(service, { body: "", headers: { "x-goog-upload-header-content-type": "jsonl" } }),
    );
    expect(await fileOf(await send(bare, "upload, finalize", 0, "{}"))).toMatchObject({ mimeType: "jsonl" });
    const headers = { "content-type": "application/jsonl" };
    const guide = await urlOf(await start(service, { body: "{'file': {'display_name': 'TEXT'}}", headers }));
    const file = await fileOf(await send(guide, "upload, finalize", 0, "x"));
    expect(file).toMatchObject({ displayName: "TEXT", mimeType: "application/octet-stream" });
  });

  it("has the address of `server.publicUrl` with its path, and the version of its start", async () => {
    const service = await serve({ server: { publicUrl: "https://images.example/gateway/" } });
    const url = await urlOf(await start(service, { prefix: "/v1" }));
    expect(url).toMatch(/^https:\/\/images\.example\/gateway\/upload\/v1\/files\?upload_id=/);
    const own = service.url + new URL(url).pathname.replace("/gateway", "") + new URL(url).search;
    const file = await fileOf(await send(own, "upload, finalize", 0, "x"));
    expect(file.uri).toBe(`https://images.example/gateway/v1beta/${file.name}`);
  });

  it("believes a proxy about the address only when the configuration says so", async () => {
    const headers = { "x-forwarded-host": "images.example", "x-forwarded-proto": "https" };
    const believing = await serve({ server: { trustProxy: true } });
    expect(await urlOf(await start(believing, { headers }))).toMatch(/^https:\/\/images\.example\/upload\//);
    const begun = await start(await serve(), { headers });
    const { origin } = new URL(begun.url);
    expect(await urlOf(begun)).toContain(`${origin}/upload/`);
  });

  it("takes a chunk again, whole or in part, and refuses a gap", async () => {
    const service = await serve();
    const url = await urlOf(await start(service));
    await send(url, "upload", 0, "red ");
    expect(stateOf(await send(url, "upload", 0, "red "))).toEqual([200, "active", "4"]);
    const gap = await send(url, "upload", 5, "x");
    expect(stateOf(gap)).toEqual([400, "active", "4"]);
    expect(await refusalOf(gap)).toEqual([400, "INVALID_ARGUMENT", "X-Goog-Upload-Offset"]);
    expect(stateOf(await send(url, "upload", 2, "d fo"))).toEqual([200, "active", "6"]);
    const shorter = await send(url, "upload, finalize", 0, "red");
    expect(await refusalOf(shorter)).toEqual([400, "INVALID_ARGUMENT", "X-Goog-Upload-Offset"]);
    const file = await fileOf(await send(url, "upload, finalize", 6, "x"));
    expect(file.sha256Hash).toBe(Buffer.from(hashOf("red fox")).toString("base64"));
    const again = await send(url, "upload, finalize", 6, "x");
    expect([stateOf(again), await fileOf(again)]).toEqual([[200, "final", "7"], file]);
    expect((await listOf(await ask(service, "/v1beta/files"))).files).toHaveLength(1);
  });

  it("keeps what came over a connection that broke in the middle of a chunk", async () => {
    const { service, url, socket } = await begun("upload, finalize", 1000);
    socket.destroy();
    const file = await fileOf(await send(url, "upload, finalize", 4, "fox"));
    expect(await downloaded(service, file.name)).toBe("red fox");
  });

  it("belongs to the request that came last; the one before it is told", async () => {
    const { service, url, socket } = await begun("upload", 8);
    expect(stateOf(await send(url, "upload", 0, "red f"))).toEqual([200, "active", "5"]);
    socket.write("blue");
    const [answer] = (await once(socket, "data")) as [Buffer];
    expect(String(answer)).toMatch(/^HTTP\/1\.1 409 /);
    expect(String(answer)).toContain('"status":"ABORTED"');
    socket.destroy();
    const file = await fileOf(await send(url, "upload, finalize", 5, "ox"));
    expect(await downloaded(service, file.name)).toBe("red fox");
  });

  it("that is finished by several requests at once is one file", async () => {
    const service = await serve();
    const url = await urlOf(await start(service));
    const answers = await Promise.all([1, 2, 3, 4].map(() => send(url, "upload, finalize", 0, "red fox")));
    const done = answers.filter(({ status }) => status === 200);
    expect(answers.filter(({ status }) => status !== 200).every(({ status }) => status === 409)).toBe(true);
    const names = await Promise.all(done.map(async (answer) => (await fileOf(answer)).name));
    expect(names.length).toBeGreaterThan(0);
    expect(new Set(names).size).toBe(1);
    expect((await listOf(await ask(service, "/v1beta/files"))).files).toHaveLength(1);
    expect(await downloaded(service, names[0])).toBe("red fox");
  });

  it("is refused above the limits of a file and of a key", async () => {
    const service = await serve();
    const announce = (bytes: number) =>
      start(service, { headers: { "x-goog-upload-header-content-length": String(bytes) } });
    const large = await announce(2 * 1024 ** 3 + 1);
    expect([stateOf(large), (await errorOf(large)).status]).toEqual([
      [413, "cancelled", null],
      "INVALID_ARGUMENT",
    ]);
    const url = await urlOf(await announce(2 * 1024 ** 3));
    for (let i = 1; i < 16; i++) expect((await start(service)).status).toBe(200);
    const full = await start(service);
    expect([stateOf(full), (await errorOf(full)).status]).toEqual([
      [429, "cancelled", null],
      "RESOURCE_EXHAUSTED",
    ]);
    expect(stateOf(await send(url, "cancel"))).toEqual([200, "cancelled", "0"]);
    const freed = await urlOf(await start(service));

    const { stores } = await openBeside(service.data);
    const key = (await stores.read.keys.list())[0];
    const record = { id: "large", apiKeyId: key?.id ?? "", displayName: null, mimeType: "x", sha256: "" };
    const bytes = {
      purpose: null,
      sizeBytes: 20 * 1024 ** 3 - 2,
      blobKey: "files/large",
      createdAtMs: 0,
      expiresAtMs: 1e15,
    };
    await stores.write((tx) => tx.files.insert({ ...record, ...bytes }));
    expect(stateOf(await send(freed, "upload", 0, "ab"))).toEqual([200, "active", "2"]);
    const above = await send(freed, "upload", 2, "c");
    expect([stateOf(above), (await errorOf(above)).status]).toEqual([
      [429, "active", "2"],
      "RESOURCE_EXHAUSTED",
    ]);
    await ask(service, "/v1beta/files/large", { method: "DELETE" });
    expect((await fileOf(await send(freed, "upload, finalize", 2, "c"))).sizeBytes).toBe("3");
  });

  it("is refused when its start or its end makes no sense", async () => {
    const service = await serve();
    const wrong: [object, string][] = [
      [{ body: { file: { name: "files/Red" } } }, "file.name"],
      [{ body: { file: { name: "files/-red" } } }, "file.name"],
      [{ body: { file: { name: `files/${"a".repeat(41)}` } } }, "file.name"],
      [{ body: { file: { displayName: "x".repeat(513) } } }, "file.displayName"],
      [{ body: { file: { mimeType: 7 } } }, "file.mimeType"],
      [{ body: { file: { displayName: "\0" } } }, "file.displayName"],
      [{ headers: { "x-goog-upload-header-content-length": "many" } }, "X-Goog-Upload-Header-Content-Length"],
      [{ headers: { "x-goog-upload-command": "begin" } }, "X-Goog-Upload-Command"],
      [{ headers: { "x-goog-upload-protocol": "raw" } }, "X-Goog-Upload-Protocol"],
    ];
    for (const [request, field] of wrong) {
      expect(await refusalOf(await start(service, request))).toEqual([400, "INVALID_ARGUMENT", field]);
    }
    for (const body of ["{", `${"[".repeat(30_000)}${"]".repeat(30_000)}`]) {
      expect((await start(service, { body })).status).toBe(400);
    }
    expect((await start(service, { body: " ".repeat(70_000) })).status).toBe(413);
    const url = await urlOf(
      await start(service, { headers: { "x-goog-upload-header-content-length": "5" } }),
    );
    for (const [command, offset, field] of [
      ["explode", 0, "X-Goog-Upload-Command"],
      ["upload", null, "X-Goog-Upload-Offset"],
      ["finalize", null, "body"],
    ] as const) {
      expect(await refusalOf(await send(url, command, offset))).toEqual([400, "INVALID_ARGUMENT", field]);
    }
    const short = await send(url, "upload, finalize", 0, "four");
    expect(stateOf(short)).toEqual([400, "active", "4"]);
    expect((await send(url, "upload, finalize", 4, "5")).status).toBe(200);
  });

  it("that is unknown is 404, and one whose key was disabled meanwhile is refused", async () => {
    const service = await serve();
    const unknown = await send(
      `${service.url}/upload/v1beta/files?upload_id=${"0".repeat(32)}`,
      "upload",
      0,
      "x",
    );
    expect([stateOf(unknown), (await errorOf(unknown)).status]).toEqual([
      [404, "cancelled", null],
      "NOT_FOUND",
    ]);
    const url = await urlOf(await start(service));
    const { stores } = await openBeside(service.data);
    const key = (await stores.read.keys.list())[0];
    await stores.write((tx) => tx.keys.setDisabled(key?.id ?? "", 1));
    for (const refused of [await send(url, "upload", 0, "x"), await start(service)]) {
      expect(stateOf(refused)).toEqual([401, "cancelled", null]);
    }
    const wrong = await fetch(`${service.url}/upload/v1beta/files?upload_id=x`, { method: "PUT" });
    expect(stateOf(wrong)).toEqual([405, "cancelled", null]);
    expect((await ask(service, "/v1beta/files")).headers.has("x-goog-upload-status")).toBe(false);
  });

  it("shows its id in no log line, event or metric", async () => {
    const logLines: string[] = [];
    const service = await startTestService({ workers: false, logLines });
    const events: unknown[] = [];
    service.feed.subscribe((event) => events.push(event));
    const url = await urlOf(await start(service));
    const id = new URL(url).searchParams.get("upload_id") ?? "none";
    await (await send(url, "upload", 9, "x")).arrayBuffer();
    await (await send(url.replace("upload_id", "upload%5Fid"), "upload", 0, "x")).arrayBuffer();
    await (await send(url.replace("?", "/"), "upload", 0, "x")).arrayBuffer();
    await (await send(url, "finalize")).arrayBuffer();
    expect(logLines.filter((line) => line.includes("/upload/")).length).toBeGreaterThanOrEqual(5);
    expect(logLines.join("\n")).not.toContain(id);
    expect(JSON.stringify(events)).not.toContain(id);
    expect(await (await fetch(`${service.url}/metrics`)).text()).not.toContain(id);
  });

  it("takes a name of the caller once", async () => {
    const service = await serve();
    expect((await upload(service, "a", { name: "files/red-fox" })).name).toBe("files/red-fox");
    const again = await start(service, { body: { file: { name: "red-fox" } } });
    expect([again.status, (await errorOf(again)).status]).toEqual([409, "ALREADY_EXISTS"]);
    await ask(service, "/v1beta/files/red-fox", { method: "DELETE" });
    expect((await upload(service, "b", { name: "files/red-fox" })).name).toBe("files/red-fox");
    expect(await downloaded(service, "files/red-fox")).toBe("b");
  });
});
