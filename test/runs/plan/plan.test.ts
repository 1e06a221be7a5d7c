import fc from "fast-check";
import { expect, it } from "vitest";
import { DEFAULT_LIMITS, expandedCustomIds } from "../../../src/contract/limits.ts";
import { planRealtimeRun, planRun, type RunRequest } from "../../../src/runs/plan/plan.ts";
import type { PromptItem } from "../../../src/runs/plan/prompt-files.ts";
import type { PromptReference } from "../../../src/runs/plan/reference-files.ts";

function item(prompt: string, fields: Partial<PromptItem> = {}): PromptItem {
  return {
    customId: null,
    prompt,
    outputCount: 1,
    references: [],
    metadata: null,
    fileLine: { file: "p.jsonl", line: 1 },
    ...fields,
  };
}

function reference(bytes: number, fields: Partial<PromptReference> = {}): PromptReference {
  const source = { path: "x" };
  return { mimeType: "image/png", sha256: "0".repeat(64), bytes, pixels: 1_000_000, source, ...fields };
}

function request(items: PromptItem[], fields: Partial<RunRequest> = {}): RunRequest {
  const model = "vendorx-3.1-flash-image";
  return { model, name: null, parentId: null, mimeType: "image/png", metadata: null, items, ...fields };
}

const plan = (items: PromptItem[], fields: Partial<RunRequest> = {}, limits = {}) =>
  planRun(request(items, fields), { ...DEFAULT_LIMITS, ...limits });

it("items without an id are named by their position in the whole run, before it is split", () => {
  const { chunks } = plan([item("a"), item("b", { customId: "mine" }), item("c")], {}, { itemsPerBatch: 1 });
  expect(chunks.map((chunk) => chunk.items[0]?.customId)).toEqual(["item_000001", "mine", "item_000003"]);
});

it("a made-up id gives way to a caller's id that looks the same", () => {
  const { items } = plan([
    item("a"),
    item("b", { customId: "item_000001" }),
    item("c", { outputCount: 2 }),
    item("d", { customId: "item_000003_02" }),
  ]);
  expect(items.map((each) => each.customId)).toEqual([
    "item_000001-2",
    "item_000001",
    "item_000003-2",
    "item_000003_02",
  ]);
});

it("whatever the prompts, the batches hold every item once, in order, and none exceeds a limit", () => {
  const anyItem = fc.record({
    prompt: fc.string({ minLength: 1 }),
    outputCount: fc.integer({ min: 1, max: 4 }),
    references: fc.array(
      fc.integer({ min: 1, max: 3000 }).map((bytes) => reference(bytes)),
      { maxLength: 3 },
    ),
  });
  const limits = {
    itemsPerBatch: 7,
    outputImagesPerBatch: 11,
    referenceBytesPerBatch: 9000,
    referenceImagesPerBatch: 20,
  };
  fc.assert(
    fc.property(fc.array(anyItem, { maxLength: 60 }), (drafts) => {
      const items = drafts.map(({ prompt, ...fields }) => item(prompt, fields));
      const { chunks, items: planned } = plan(items, {}, limits);
      expect(chunks.flatMap((chunk) => chunk.items)).toEqual(planned);
      expect(chunks.every((chunk) => chunk.items.length > 0)).toBe(true);
      for (const { items: part, imageCount } of chunks) {
        expect(part.length).toBeLessThanOrEqual(7);
        expect(imageCount).toBeLessThanOrEqual(11);
        const bytes = part.flatMap((each) => each.references).reduce((sum, each) => sum + each.bytes, 0);
        expect(bytes).toBeLessThanOrEqual(9000);
      }
      const ids = planned.flatMap((each) => expandedCustomIds(each.customId, each.outputCount));
      expect(new Set(ids).size).toBe(ids.length);
      expect(new Set(chunks.map((chunk) => chunk.contentKey)).size).toBe(chunks.length);
    }),
  );
});

it("reference images count for the body's size and for the pixels of a request", () => {
  const heavy = () => item("x", { references: [reference(10_000_000)] });
  expect(plan([heavy(), heavy(), heavy()], {}, { createBodyBytes: 32_000_000 }).chunks).toHaveLength(2);
  const wide = () => item("x", { references: [reference(1, { pixels: 60_000_000 })] });
  expect(plan(Array.from({ length: 7 }, wide)).chunks).toHaveLength(2);
});

it("equal reference images count once in a request that has their bytes once", () => {
  const heavy = () => item("x", { references: [reference(10_000_000)] });
  const limits = { ...DEFAULT_LIMITS, createBodyBytes: 32_000_000 };
  const items = [heavy(), heavy(), heavy(), heavy()];
  expect(planRun(request(items), limits).chunks).toHaveLength(2);
  expect(planRun(request(items), limits, true).chunks).toHaveLength(1);
});

it("the key comes from the content: the same request gives the same key, any change another", () => {
  const base = plan([item("a")]).chunks[0]?.contentKey;
  expect(base).toMatch(/^ib1-[0-9a-f]{64}$/);
  expect(plan([item("a", { fileLine: { file: "other.txt", line: 9 } })]).chunks[0]?.contentKey).toBe(base);
  const others = [
    plan([item("b")]),
    plan([item("a", { outputCount: 2 })]),
    plan([item("a", { customId: "x" })]),
    plan([item("a", { references: [reference(1)] })]),
    plan([item("a", { references: [reference(1, { sha256: "1".repeat(64) })] })]),
    plan([item("a")], { model: "other" }),
    plan([item("a")], { name: "n" }),
    plan([item("a")], { parentId: "p" }),
    plan([item("a")], { mimeType: "image/webp" }),
    plan([item("a")], { metadata: { k: "v" } }),
    plan([item("a")], { isReal: true }),
    plan([item("a", { seed: 0 })]),
    plan([item("a", { seed: 1 })]),
    plan([item("a", { quality: "low" })]),
    plan([item("a", { negative_prompt: "low" })]),
    plan([item("a", { model: "other" })]),
  ].map((each) => each.chunks[0]?.contentKey);
  expect(new Set([base, ...others]).size).toBe(others.length + 1);
});

it("a key that was once derived stays the key of that content", () => {
  const reference = (letter: string, labels = {}): PromptReference => ({
    mimeType: "image/png",
    sha256: letter.repeat(64),
    bytes: 3,
    pixels: 1,
    source: { path: "x" },
    ...labels,
  });
  const items = [
    item('say "hi" \u2028 é 🐈\n', { outputCount: 2 }),
    item("x".repeat(100), {
      customId: "cat",
      references: [reference("a"), reference("b", { id: 'i"d', type: "style" })],
    }),
    item("last"),
  ];
  const fields = { model: "m", name: 'n "items":[]', metadata: { z: "1", items: "[]", a: '"items":[]' } };
  const { chunks, inputSha256 } = plan(items, fields, { itemsPerBatch: 2 });
  expect(chunks.map((chunk) => chunk.contentKey)).toEqual([
    "ib1-bd358a8f657ee10897ed8bf02a831b06dc2d3f0dc7577f3eb98b54b6b1d25be1",
    "ib1-14adb91b1786cb4e8bd2ffb41e12abebe548ad1059335dcfcf4cf8724ac290ca",
  ]);
  expect(inputSha256).toBe("6d581998bc96566ac86b9beadf1f6faa3e838db5c897d3fa6e97af759ae4a77c");
  const realtime = planRealtimeRun({ model: "m", options: { size: "2K" }, mimeType: null }, items);
  expect(realtime.inputSha256).toBe("a9e43e50b26fff5ce3c3cafbfd1c7421441e52f5219617491fa5ab3f1e7566d0");
});
