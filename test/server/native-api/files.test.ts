import { describe, expect, it } from "vitest";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { draftsBelow } from "../../support/drafts.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, made, tinyJpeg, tinyPng } from "../../support/fake-provider.ts";
import { content, generate, imagePart, picture, refusalOf } from "../../support/realtime.ts";
import { openBeside, startTestService } from "../../support/service.ts";
import { ask, fileOf, listOf, send, start, upload, urlOf } from "../../support/uploads.ts";

const HOUR_MS = 3_600_000;
const serve = () => startTestService({ workers: false });

describe("an uploaded file", () => {
  it("is listed by parameters in either spelling, and a wrong one is named", async () => {
    const service = await serve();
    expect(await (await ask(service, "/v1beta/files")).json()).toEqual({ files: [] });
    const [older] = [await upload(service, "a"), await upload(service, "b")];
    const first = await listOf(await ask(service, "/v1beta/files?page_size=1"));
    const next = await ask(service, `/v1beta/files?page_size=1&page_token=${first.nextPageToken}`);
    expect(await next.json()).toEqual({ files: [expect.objectContaining({ name: older?.name })] });
    for (const query of ["pageSize=x", "pageToken=x"]) {
      const refusal = await refusalOf(await ask(service, `/v1beta/files?${query}`));
      expect(refusal).toEqual([400, "INVALID_ARGUMENT", query.split("=")[0]]);
    }
  });

  it("[FILES-5] is downloaded from both paths, whole, in part or not at all", async () => {
    const service = await serve();
    const { name } = await upload(service, "a red fox", { mimeType: "text/plain" });
    for (const path of [
      `/v1beta/${name}:download`,
      `/download/v1beta/${name}:download`,
      `/v1beta/${name}%3Adownload`,
    ]) {
      const whole = await ask(service, `${path}?alt=media`);
      expect([whole.status, await whole.text()]).toEqual([200, "a red fox"]);
      expect(whole.headers.get("content-type")).toBe("text/plain");
      const etag = whole.headers.get("etag") ?? "";
      const part = await ask(service, path, { headers: { range: "bytes=2-4", "if-range": etag } });
      expect([part.status, await part.text()]).toEqual([206, "red"]);
      expect((await ask(service, path, { headers: { range: "bytes=99-" } })).status).toBe(416);
      expect((await ask(service, path, { headers: { "if-none-match": etag } })).status).toBe(304);
      const head = await ask(service, path, { method: "HEAD" });
      expect([head.status, head.headers.get("content-length")]).toEqual([200, "9"]);
    }
  });

  it("[FILES-5] of a type that fits into no header is downloaded as bytes", async () => {
    const service = await serve();
    const { name, mimeType } = await upload(service, "x", { mimeType: "jsonl\r\nx: y" });
    expect(mimeType).toBe("jsonl\r\nx: y");
    const answer = await ask(service, `/v1beta/${name}:download`);
    expect(answer.headers.get("content-type")).toBe("application/octet-stream");
  });

  it("[FILES-5] whose bytes are gone is an error, not a short answer", async () => {
    const service = await serve();
    const { name } = await upload(service, "x");
    const { stores, blobs } = await openBeside(service.data);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
    await blobs.deleteAll("files/");
    expect((await checkInvariants(stores, blobs)).problems).toEqual([expect.stringContaining("is missing")]);
    expect((await ask(service, `/v1beta/${name}:download`)).status).toBe(500);
    expect((await ask(service, `/v1beta/${name}`)).status).toBe(200);
  });

  it("is gone after 48 hours, with its bytes, and makes way for its name", async () => {
    const clock = new FakeClock();
    const config = { retention: { sweepMinutes: 10 } };
    const service = await startTestService({ clock, config });
    const { blobs } = await openBeside(service.data);
    const { name } = await upload(service, "x", { name: "files/fox" });
    await expect.poll(() => clock.sleeperCount).toBe(1);
    clock.advance(48 * HOUR_MS - 1);
    await expect.poll(() => clock.sleeperCount).toBe(1);
    expect((await ask(service, `/v1beta/${name}`)).status).toBe(200);
    clock.advance(1);
    expect((await ask(service, `/v1beta/${name}`)).status).toBe(404);
    expect(await (await ask(service, "/v1beta/files")).json()).toEqual({ files: [] });
    expect(await blobs.list("files/")).toHaveLength(1);
    const again = await upload(service, "y", { name: "files/fox" });
    expect(await (await ask(service, `/v1beta/${again.name}:download`)).text()).toBe("y");
    expect(await blobs.list("files/")).toHaveLength(1);
    clock.advance(48 * HOUR_MS);
    await expect.poll(() => blobs.list("files/")).toEqual([]);
  });

  it("outlives a restart, and so does what an unfinished upload has brought", async () => {
    const service = await startTestService();
    const { name } = await upload(service, "x");
    const url = new URL(await urlOf(await start(service)));
    await send(url.href, "upload", 0, "unfinished");
    const { blobs } = await openBeside(service.data);
    await blobs.put("files/stored-without-a-record", Buffer.from("x"));
    await service.close(0);
    const next = await startTestService({ data: service.data });
    expect(await (await ask(next, `/v1beta/${name}:download`)).text()).toBe("x");
    expect(await blobs.list("files/")).toHaveLength(1);
    const last = await send(next.url + url.pathname + url.search, "upload, finalize", 10, " no more");
    expect((await fileOf(last)).sizeBytes).toBe("18");
    expect(await draftsBelow(service.data)).toEqual([]);
  });
});

async function serveEdits(config: object = {}) {
  const provider = new FakeProvider();
  const service = await startTestService({ workers: false, providers: [provider], config });
  const edit = (...fileUris: string[]) =>
    generate(
      service,
      content(
        "bluer",
        {},
        fileUris.map((fileUri) => ({ fileData: { fileUri, mimeType: "image/png" } })),
      ),
    );
  return { provider, service, edit };
}

const FIELD = "contents[0].parts[1].fileData.fileUri";

describe("a fileUri", () => {
  it("is an input image by the id at its end, wherever it points and whatever type it declares", async () => {
    const { provider, service, edit } = await serveEdits();
    const bytes = await picture({ widthPx: 96, heightPx: 64 });
    const { name, uri } = await upload(service, bytes, { mimeType: "text/plain" });
    let read: Buffer[] = [];
    provider.answer = async ({ references }) => {
      read = await Promise.all(references.map((reference) => reference.read()));
      return made(await tinyPng());
    };
    for (const fileUri of [uri ?? "", name, `https://elsewhere.invalid/v1beta/${name}`]) {
      expect((await edit(fileUri)).status).toBe(200);
      expect(read.map((image) => image.equals(bytes))).toEqual([true]);
    }
    const [request] = provider.requests;
    expect(request?.references.map(({ mimeType }) => mimeType)).toEqual(["image/png"]);
    expect(request?.options.ratio).toBe("3:2");
    const snake = content("x", {}, [{ file_data: { file_uri: uri } }, imagePart(await tinyPng(2))]);
    expect((await generate(service, snake, { prefix: "/v1" })).status).toBe(200);
    expect(read).toHaveLength(2);
  });

  it("of nobody, of another file, of no image, or of too large a one is refused", async () => {
    const { service, edit } = await serveEdits({ limits: { referenceImageBytes: 100_000 } });
    const text = await upload(service, "not an image");
    const large = await upload(service, Buffer.alloc(100_001));
    const gone = await upload(service, await tinyJpeg());
    await ask(service, `/v1beta/${gone.name}`, { method: "DELETE" });
    for (const fileUri of [
      text.name,
      large.name,
      gone.name,
      "https://elsewhere.invalid/fox.png",
      "",
      "files/",
    ]) {
      expect([fileUri, await refusalOf(await edit(fileUri))]).toEqual([
        fileUri,
        [400, "INVALID_ARGUMENT", FIELD],
      ]);
    }
    const names = await Promise.all(
      Array.from({ length: 15 }, async () => (await upload(service, await tinyPng())).name),
    );
    expect(await refusalOf(await edit(...names))).toEqual([400, "INVALID_ARGUMENT", "contents"]);
    expect((await edit(...names.slice(1))).status).toBe(200);
  });

  it("keeps its bytes until the request has ended, even when the file is deleted meanwhile", async () => {
    const { provider, service, edit } = await serveEdits();
    const bytes = await tinyJpeg();
    const { name } = await upload(service, bytes);
    let isSame = false;
    provider.answer = async ({ references }) => {
      await ask(service, `/v1beta/${name}`, { method: "DELETE" });
      isSame = (await references[0]?.read())?.equals(bytes) ?? false;
      return made(await tinyPng());
    };
    expect((await edit(name, name)).status).toBe(200);
    expect(isSame).toBe(true);
    await expect.poll(() => draftsBelow(service.data)).toEqual([]);
    const { blobs } = await openBeside(service.data);
    expect(await blobs.list("files/")).toEqual([]);
  });

  it("serves a client that uploads without any description, waits for ACTIVE, and edits", async () => {
    const { service, edit } = await serveEdits();
    const url = await urlOf(await start(service, { body: "" }));
    const last = await send(url, "upload, finalize", 0, await tinyJpeg());
    const { file } = await last.json();
    expect((await (await ask(service, `/v1beta/${file.name}`)).json()).state).toBe("ACTIVE");
    expect((await edit(file.uri)).status).toBe(200);
  });
});
