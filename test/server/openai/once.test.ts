import { describe, expect, it } from "vitest";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { edit, form, generate, refusalOf } from "../../support/openai-images.ts";
import { openBeside, startTestService } from "../../support/service.ts";

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
        await bodyOf(await generate(service, { ...fields, user: "ignored" }, { headers })),
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
      wanted(png, ["size", "512x1024"]),
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
