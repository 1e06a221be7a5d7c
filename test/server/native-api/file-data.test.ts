import { describe, expect, it } from "vitest";
import { draftsBelow } from "../../support/drafts.ts";
import { FakeProvider, made, tinyJpeg, tinyPng } from "../../support/fake-provider.ts";
import { content, generate, imagePart, picture, refusalOf } from "../../support/realtime.ts";
import { openBeside, startTestService } from "../../support/service.ts";
import { ask, send, start, upload, urlOf } from "../../support/uploads.ts";

async function serve(config: object = {}) {
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
    const { provider, service, edit } = await serve();
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
    expect(request?.ratio).toBe("3:2");
    const snake = content("x", {}, [{ file_data: { file_uri: uri } }, imagePart(await tinyPng(2))]);
    expect((await generate(service, snake, { prefix: "/v1" })).status).toBe(200);
    expect(read).toHaveLength(2);
  });

  it("of nobody, of another file, of no image, or of too large a one is refused", async () => {
    const { service, edit } = await serve({ limits: { referenceImageBytes: 100_000 } });
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
    const { provider, service, edit } = await serve();
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
    const { service, edit } = await serve();
    const url = await urlOf(await start(service, { body: "" }));
    const last = await send(url, "upload, finalize", 0, await tinyJpeg());
    const { file } = await last.json();
    expect((await (await ask(service, `/v1beta/${file.name}`)).json()).state).toBe("ACTIVE");
    expect((await edit(file.uri)).status).toBe(200);
  });
});
