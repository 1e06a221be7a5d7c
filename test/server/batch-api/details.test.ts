import { describe, expect, it } from "vitest";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { MODEL, openBeside, startTestService } from "../../support/service.ts";

const HOSTILE = '<img src=x onerror=alert(1)> "\u2028\u202e';

/** A batch whose first item has a long hostile prompt, two outputs and a reference. */
async function described() {
  const provider = new FakeProvider();
  provider.answer = async () => made(await tinyPng(3));
  const service = await startTestService({ providers: [provider] });
  const reference = await tinyPng(7);
  const data = reference.toString("base64");
  const prompt = HOSTILE + "x".repeat(200);
  const { id } = await service.submit({
    model: MODEL,
    task_name: HOSTILE,
    items: [
      {
        custom_id: "<b>",
        prompt,
        output_count: 2,
        reference_images: [{ id: HOSTILE, type: "style", mime_type: "image/png", data }],
      },
      { custom_id: "plain", prompt: "plain" },
    ],
  });
  await service.until(id);
  const ask = (path: string) => service.ask(`/${id}/items${path}`);
  return { service, id, ask, prompt, reference };
}

describe("the item list", () => {
  it("has whole prompts, references and images when it is asked for them, and costs always", async () => {
    const { ask, prompt } = await described();
    const { data: bare } = await (await ask("")).json();
    expect(bare[0]).toMatchObject({ custom_id: "<b>_01", cost: 0.0335 });
    expect(Object.keys(bare[0])).not.toEqual(expect.arrayContaining(["prompt"]));
    const { data } = await (await ask("?include=prompt,references,images")).json();
    const image = await tinyPng(3);
    const images = [
      { mime_type: "image/png", width: 8, height: 8, size: image.length, sha256: sha256Hex(image) },
    ];
    const references = [{ id: HOSTILE, type: "style", mime_type: "image/png", storage_uri: null }];
    expect(data).toMatchObject([
      { custom_id: "<b>_01", prompt, references, images },
      { custom_id: "<b>_02", prompt, references, images },
      { custom_id: "plain", prompt: "plain", references: [], images },
    ]);
    const { data: some } = await (await ask("?include=images&limit=1")).json();
    expect([some[0].images, some[0].prompt, some[0].references]).toEqual([images, undefined, undefined]);
  });

  it("refuses to include anything else", async () => {
    const { ask } = await described();
    for (const include of ["blob_key", "prompt,", "prompt,__proto__"]) {
      const answer = await ask(`?include=${include}`);
      expect([answer.status, (await answer.json()).error.param]).toEqual([400, "include"]);
    }
  });
});

describe("a reference image of an item", () => {
  it("comes as it was sent, as a file with a safe name", async () => {
    const { ask, reference } = await described();
    const answer = await ask("/%3Cb%3E_02/references/0");
    expect(Buffer.from(await answer.arrayBuffer())).toEqual(reference);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "image/png",
      etag: `"${sha256Hex(reference)}"`,
      "x-content-type-options": "nosniff",
      "content-disposition": expect.stringContaining("attachment"),
    });
    expect(answer.headers.get("content-disposition")).not.toContain("<b>");
  });

  it("that does not exist is 404, that is lost 500, and that was deleted 410", async () => {
    const { service, id, ask } = await described();
    const codes = async (path: string) => {
      const answer = await ask(path);
      return [answer.status, (await answer.json()).error.code];
    };
    for (const index of ["1", "-1", "x", "0.5", "__proto__"]) {
      expect(await codes(`/%3Cb%3E_01/references/${index}`)).toEqual([404, "BATCH_IMAGE_ITEM_NOT_FOUND"]);
    }
    expect(await codes("/plain/references/0")).toEqual([404, "BATCH_IMAGE_ITEM_NOT_FOUND"]);
    const { stores, blobs } = await openBeside(service.data);
    await blobs.deleteAll(`inputs/${id}/`);
    expect(await codes("/%3Cb%3E_01/references/0")).toEqual([500, "BATCH_IMAGE_RESULT_MISSING"]);
    await stores.write((tx) => tx.batches.update(id, { inputsPurgedAtMs: 1 }));
    expect(await codes("/%3Cb%3E_01/references/0")).toEqual([410, "BATCH_IMAGE_OUTPUT_DELETED"]);
  });
});
