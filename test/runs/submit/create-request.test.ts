import { rm, writeFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import { storeReferences } from "../../../src/runs/directory/input.ts";
import { hashFile } from "../../../src/runs/directory/verified-files.ts";
import { planRun } from "../../../src/runs/plan/plan.ts";
import { type PromptReference, readPromptFiles } from "../../../src/runs/plan/prompt-files.ts";
import { createBody } from "../../../src/runs/request.ts";
import { png } from "../../support/fake-service.ts";
import { createBench } from "../../support/run-harness.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** Images of sizes around the ends of the pieces that a file is read in. */
const SIZES = [0, 1, 2, 3, 49_152 - png("x").length, 49_153 - png("x").length, 150_000];
const image = (tail: number) => Buffer.concat([png("x"), Buffer.alloc(tail, tail)]);

it("[RUN-25] the body in pieces is the very JSON, with each image, and as long as it says", async () => {
  const dir = await tempDir();
  for (const size of SIZES) await writeFile(`${dir}/${size}.png`, image(size));
  const lines = [
    { custom_id: "é \u2028", prompt: 'say "hi"', output_count: 2, reference_images: ["0.png", "1.png"] },
    { custom_id: "b", prompt: "none" },
    {
      custom_id: "c",
      prompt: "labels",
      reference_images: SIZES.map((size) => ({ path: `${size}.png`, id: 'i"d', type: "style" })),
    },
  ];
  const text = lines.map((line) => JSON.stringify(line)).join("\n");
  const stdin = async function* () {
    yield Buffer.from(text);
  };
  const source = { name: "-", cwd: dir, stdin };
  const items = await readPromptFiles([source], { limits: DEFAULT_LIMITS, defaultCount: 1 });
  const request = {
    model: "m",
    name: "n",
    parentId: null,
    mimeType: "image/png",
    metadata: { k: "v" },
  } as const;
  const [chunk] = planRun({ ...request, items }, DEFAULT_LIMITS).chunks;
  if (chunk === undefined) throw new Error("no chunk");
  await storeReferences(
    dir,
    items.flatMap((item): PromptReference[] => item.references),
  );
  const body = createBody(dir, request, chunk.items);
  if (typeof body === "string") throw new Error("not in pieces");
  const pieces: Uint8Array[] = [];
  for await (const piece of body.open()) pieces.push(piece);
  const whole = Buffer.concat(pieces);
  expect(whole.length).toBe(body.bytes);
  expect(Math.max(...pieces.map((piece) => piece.length))).toBeLessThanOrEqual(65_536);
  const sent = (size: number, labels = {}) => ({
    ...labels,
    mime_type: "image/png",
    data: image(size).toString("base64"),
  });
  expect(JSON.parse(whole.toString())).toEqual({
    model: "m",
    task_name: "n",
    metadata: { k: "v" },
    response_mime_type: "image/png",
    items: [
      { custom_id: "é \u2028", prompt: 'say "hi"', output_count: 2, reference_images: [sent(0), sent(1)] },
      { custom_id: "b", prompt: "none" },
      {
        custom_id: "c",
        prompt: "labels",
        reference_images: SIZES.map((size) => sent(size, { id: 'i"d', type: "style" })),
      },
    ],
  });
});

it("[RUN-25] a stored image that changes, shrinks or goes while it is sent is exit 9 and makes nothing", async () => {
  for (const change of [image(100_001).subarray(1), Buffer.alloc(0), null]) {
    const bench = await createBench();
    await writeFile(`${bench.root}/photo.png`, image(100_000));
    const lines = [
      { custom_id: "a", prompt: "first", reference_images: ["photo.png"] },
      { custom_id: "b", prompt: "second", reference_images: ["photo.png"] },
    ];
    const path = bench.path(`references/${await hashFile(`${bench.root}/photo.png`)}`);
    bench.fake.fault(/^POST/, {
      handle: (_, response) => {
        const wreck = change === null ? rm(path) : writeFile(path, change);
        void wreck.then(() => response.writeHead(503, { "retry-after": "0" }).end());
      },
    });
    await expect(bench.submit(lines)).rejects.toMatchObject({ code: "SAVE_FAILED" });
    expect(bench.fake.batches).toEqual([]);
  }
});
