import { expect, it } from "vitest";
import { requestHash } from "../../../src/domain/batches/checked-request.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { canonicalJson } from "../../../src/kernel/json.ts";

const reference = {
  id: "r1",
  type: null,
  mimeType: "image/webp" as const,
  sha256: "ab".repeat(32),
  storageUri: null,
};

it("the hash of a request is that of its canonical JSON, without the bytes of its images", () => {
  const items = [
    { customId: "a", prompt: 'a "fox"\n\u2028 \u{1f98a}', outputCount: 1, references: [] },
    { customId: "b", prompt: "b", outputCount: 4, references: [reference, { ...reference, id: null }] },
    { customId: "c", prompt: "long ".repeat(20_000), outputCount: 1, references: [] },
    { customId: "d", prompt: "d", outputCount: 1, references: [] },
  ];
  const facts = {
    taskName: "t\u00e4sk",
    parentBatchId: null,
    mimeType: "image/png" as const,
    metadata: { zoo: "1", items: "2" },
  };
  const withBytes = items.map((item) => ({
    ...item,
    references: item.references.map((each) => ({ ...each, image: null })),
  }));
  for (const some of [0, 1, 2, 3, 4]) {
    const asked = { ...facts, modelId: "m", items: withBytes.slice(0, some) };
    const whole = canonicalJson({ ...facts, model: "m", items: items.slice(0, some) });
    expect(requestHash(asked)).toBe(sha256Hex(whole));
  }
  const bare = { ...facts, metadata: {}, modelId: "m", items: [] };
  expect(requestHash(bare)).toBe(requestHash({ ...bare, metadata: null }));
});
