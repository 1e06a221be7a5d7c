import { describe, expect, it } from "vitest";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { KEPT } from "../../../src/domain/retention.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { edit, form, generate, refusalOf } from "../../support/openai-images.ts";
import { openBeside, startTestService, type TestService } from "../../support/service.ts";

async function urlOf(service: TestService, fields: object = {}): Promise<string> {
  const answer = await generate(service, { prompt: "x", response_format: "url", ...fields });
  const { data } = (await answer.json()) as { data: { url: string; b64_json?: string }[] };
  expect(data).toEqual([{ url: expect.stringMatching(/\/v1\/images\/outputs\/[0-9a-f]{32}\.(png|jpg)$/) }]);
  return data[0]?.url ?? "";
}

describe("an image by URL", () => {
  it("is read without a key and with any, with its type, as it is", async () => {
    const service = await startTestService({ workers: false });
    const { url: address } = service;
    const url = await urlOf({ ...service, url: address });
    expect(url.startsWith(`${address}/v1/images/outputs/`)).toBe(true);
    for (const headers of [{}, { authorization: "Bearer wrong" }, { authorization: "Basic eA==" }]) {
      const answer = await fetch(url, { headers });
      expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "image/png"]);
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(Buffer.from(await answer.arrayBuffer())).toEqual(await tinyPng());
    }
    const etag = (await fetch(url, { method: "HEAD" })).headers.get("etag") ?? "";
    for (const [status, headers] of [
      [206, { range: "bytes=0-3" }],
      [416, { range: "bytes=999999-" }],
      [304, { "if-none-match": etag }],
    ] as const)
      expect((await fetch(url, { headers })).status).toBe(status);
    const jpeg = await fetch(await urlOf(service, { output_format: "jpeg" }));
    expect(jpeg.headers.get("content-type")).toBe("image/jpeg");
    await jpeg.arrayBuffer();
  });

  it("begins with the public URL of the service", async () => {
    const config = { server: { publicUrl: "https://images.example/base/" } };
    const service = await startTestService({ workers: false, config });
    expect(await urlOf(service)).toMatch(/^https:\/\/images\.example\/base\/v1\/images\/outputs\//);
  });

  it("is there for an hour, also after a restart, and is then removed", async () => {
    const clock = new FakeClock();
    const first = await startTestService({ clock });
    const path = new URL(await urlOf(first)).pathname;
    await first.close(0);
    const second = await startTestService({ clock, data: first.data });
    const statusOf = async () => {
      const answer = await fetch(second.url + path);
      await answer.arrayBuffer();
      return answer.status;
    };
    await clock.advance(KEPT.links.forMs - 1);
    expect(await statusOf()).toBe(200);
    await clock.advance(1);
    expect(await refusalOf(await fetch(second.url + path))).toEqual([404, "REALTIME_OUTPUT_NOT_FOUND", null]);
    const { stores, blobs } = await openBeside(second.data);
    expect(await blobs.list("links/")).toHaveLength(1);
    // The sweep comes every half an hour; one may be at work, for any time.
    let polls = 0;
    const later = async () => {
      if (polls++ % 50 === 0) await clock.advance(KEPT.links.forMs / 2);
      return blobs.list("links/");
    };
    await expect.poll(later).toEqual([]);
    const rows = () => stores.read.linkedImages.due(Number.MAX_SAFE_INTEGER, { afterSeq: 0, limit: 9 });
    // The row goes after the image.
    await expect.poll(rows).toEqual([]);
  });

  it("is not listed, guessed or named in any log", async () => {
    const logLines: string[] = [];
    const service = await startTestService({ workers: false, logLines });
    const url = await urlOf(service);
    const name = url.split("/").at(-1) ?? "";
    await (await fetch(url)).arrayBuffer();
    await (await fetch(`${url}?x=1`, { method: "HEAD" })).arrayBuffer();
    for (const path of ["", "/", `/${name.slice(0, 31)}x.png`, `/${name.slice(0, 32)}`]) {
      const answer = await fetch(`${service.url}/v1/images/outputs${path}`);
      await answer.arrayBuffer();
      expect([path, answer.status]).toEqual([path, 404]);
    }
    expect(logLines.join("\n")).toContain("/v1/images/outputs/…");
    expect(logLines.join("\n")).not.toContain(name.slice(0, 31));
  });

  it("is found missing by a check of the data", async () => {
    const service = await startTestService({ workers: false });
    await urlOf(service);
    const { stores, blobs } = await openBeside(service.data);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
    const key = (await blobs.list("links/"))[0]?.key ?? "";
    await blobs.delete(key);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([
      `an image with a link: ${key} is missing`,
    ]);
  });

  it("that was stored before the process died, but not recorded, is removed at the next start", async () => {
    const first = await startTestService();
    const kept = new URL(await urlOf(first)).pathname;
    await first.close(0);
    const { blobs } = await openBeside(first.data);
    await blobs.put(`links/${"0".repeat(64)}`, await tinyPng());
    const second = await startTestService({ data: first.data });
    expect(await blobs.list("links/")).toHaveLength(1);
    const answer = await fetch(second.url + kept);
    expect(answer.status).toBe(200);
    await answer.arrayBuffer();
  });
});

const once = { headers: { "idempotency-key": "k" } };

/** The body, and whether it was given before. */
async function bodyOf(answer: Response): Promise<[string, string | null]> {
  expect(answer.status).toBe(200);
  return [await answer.text(), answer.headers.get("idempotency-replayed")];
}

describe("a request for images with an idempotency key", () => {
  it("is made and paid for once, with the same bytes, also by URL and as a stream", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ seed }) => made(await tinyPng(seed));
    const service = await startTestService({ workers: false, providers: [provider] });
    for (const [key, fields] of [
      ["plain", { prompt: "x", n: 3 }],
      ["url", { prompt: "x", response_format: "url" }],
      ["stream", { prompt: "x", stream: true, output_format: "jpeg" }],
    ] as const) {
      const asked = provider.requests.length;
      const headers = { "idempotency-key": key };
      const [first, repeat] = [
        await bodyOf(await generate(service, fields, { headers })),
        await bodyOf(await generate(service, { ...fields, style: "ignored" }, { headers })),
      ];
      expect([first[1], repeat]).toEqual(["false", [first[0], "true"]]);
      expect(provider.requests.length - asked).toBe("n" in fields ? fields.n : 1);
    }
    const { stores } = await openBeside(service.data);
    const captured = (await stores.read.ledger.list({})).filter(({ kind }) => kind === "capture");
    expect(captured.map(({ amountMicroUsd }) => amountMicroUsd)).toEqual([201_000, 67_000, 67_000]);
  });

  it("is compared by what it asks for: of a form the fields and files, not the boundary", async () => {
    const provider = new FakeProvider();
    const service = await startTestService({ workers: false, providers: [provider] });
    const [png, other] = [await tinyPng(1), await tinyPng(2)];
    const wanted = (image: Buffer, ...more: [string, string][]) =>
      form(["prompt", "x"], ["image", image], ...more);
    const [first] = await bodyOf(await edit(service, wanted(png), once));
    expect(await bodyOf(await edit(service, form(["image[]", png], ["prompt", " x"]), once))).toEqual([
      first,
      "true",
    ]);
    for (const sent of [
      wanted(other),
      wanted(png, ["n", "2"]),
      wanted(png, ["size", "1024x1536"]),
      wanted(png, ["output_format", "webp"]),
      wanted(png, ["response_format", "url"]),
      wanted(png, ["stream", "true"]),
    ]) {
      const refusal = await refusalOf(await edit(service, sent, once));
      expect(refusal).toEqual([409, "REALTIME_IDEMPOTENCY_CONFLICT", null]);
    }
    expect(await refusalOf(await generate(service, { prompt: "x" }, once))).toMatchObject([409, {}, null]);
    expect(provider.requests).toHaveLength(1);
  });
});
