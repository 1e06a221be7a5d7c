import { describe, expect, it } from "vitest";
import { IMAGE_MIME_TYPES, sniffImageType } from "../../../src/contract/image-formats.ts";
import { InvalidImageError } from "../../../src/domain/ports/image-inspector.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import type { Simulation } from "../../../src/providers/procedural/provider.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { draw, generate } from "./requests.ts";

const inspector = sharpInspector(new Decoding());

describe("the procedural provider", () => {
  it("the model version of its result says that the picture is a procedural drawing", async () => {
    expect((await generate("a fox")).modelVersion).toMatch(/^test-model \(procedural\/\d+\)$/);
  });

  it.each<[string, object, object?]>([
    ["[[fail:EMPTY_IMAGE_OUTPUT]]", { code: "EMPTY_IMAGE_OUTPUT", source: "provider" }],
    ["[[fail:EMPTY_IMAGE_OUTPUT]]", { code: "EMPTY_IMAGE_OUTPUT" }, { origin: "child-batch" }],
    ["[[fail-once:PROVIDER_TIMEOUT]]", { code: "PROVIDER_TIMEOUT", retryable: true }],
    ["[[status:429]]", { code: "PROVIDER_RATE_LIMITED", retryable: true, retryAfterMs: null }],
    ["[[status:504]]", { code: "PROVIDER_TIMEOUT", retryable: true }],
    ["[[status:408]]", { code: "PROVIDER_TIMEOUT", retryable: true }],
    ["[[status:500]]", { code: "PROVIDER_ITEM_FAILED", retryable: true }],
    ["[[status:503]]", { code: "PROVIDER_ITEM_FAILED", retryable: true }],
    ["[[status:400]]", { code: "INVALID_ARGUMENT", retryable: false, retryAfterMs: null }],
    ["[[status:404]]", { code: "INVALID_ARGUMENT", retryable: false }],
    ["[[status:429]] [[retry-after:3s]]", { retryAfterMs: 3000 }],
    ["[[retry-after:1s]] [[fail:PROVIDER_RATE_LIMITED]]", { retryAfterMs: 1000, retryable: true }],
    ["[[refuse]]", { code: "SAFETY_BLOCKED", retryable: false }],
  ])("[DRAW-12] %s fails with %j", async (directives, error, changes = {}) => {
    await expect(generate(`a fox ${directives}`, changes)).rejects.toMatchObject(error);
  });

  it("[DRAW-12] fail-once draws in a retry", async () => {
    const retried = await generate("[[fail-once:PROVIDER_TIMEOUT]]", { origin: "child-batch" });
    expect(retried.images).toHaveLength(1);
  });

  it("[DRAW-12] empty gives no image, and images gives several that differ", async () => {
    expect((await generate("a fox [[empty]]")).images).toEqual([]);
    const { images } = await generate("a fox [[images:2]]");
    expect(images).toHaveLength(2);
    expect(images[0]).not.toEqual(images[1]);
  });

  it("[DRAW-12] bad-bytes begin as the asked type and do not decode", async () => {
    for (const mimeType of IMAGE_MIME_TYPES) {
      const bytes = await draw("a fox [[bad-bytes]]", { options: { mimeType } });
      expect(sniffImageType(bytes)).toBe(mimeType);
      await expect(inspector.inspect(bytes, { maxPixels: 1e9 })).rejects.toThrow(InvalidImageError);
    }
  });

  it("[DRAW-12] delay waits on the clock before it draws or fails", async () => {
    const clock = new InstantClock();
    await expect(generate("[[delay:2s]] [[refuse]]", {}, { clock })).rejects.toThrow();
    expect(clock.sleepsMs).toEqual([2000]);
  });

  it("[DRAW-12] a directive is not drawn: the picture is that of the remaining text, and says the whole prompt", async () => {
    const [plain, directed] = [await draw("a fox"), await draw("a fox [[delay:1ms]]")];
    expect(directed.includes("a fox [[delay:1ms]]")).toBe(true);
    const { default: sharp } = await import("sharp");
    expect((await sharp(directed).raw().toBuffer()).equals(await sharp(plain).raw().toBuffer())).toBe(true);
  });

  it("an aborted request rejects with the signal's reason", async () => {
    const reason = new Error("stop");
    for (const prompt of ["a fox", "a fox [[delay:1h]]"])
      await expect(generate(prompt, {}, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const running = generate("a fox", {}, { signal: controller.signal });
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
  });

  /** The outcomes of this many requests while a share of them is to fail. */
  const outcomes = (count: number, simulate: Simulation, changes: object = {}, clock = new InstantClock()) =>
    Promise.all(
      Array.from({ length: count }, (_, i) =>
        generate(`fox ${i} [[empty]]`, changes, { clock, simulate }).then(
          () => "ok",
          (error) => String(error.code),
        ),
      ),
    );

  it("simulation adds its latency and fails a reproducible share", async () => {
    const clock = new InstantClock();
    const simulate = { latencyMs: 250, fail: 0.3, seed: 7 };
    const first = await outcomes(200, simulate, {}, clock);
    expect(await outcomes(200, simulate)).toEqual(first);
    const failed = first.filter((outcome) => outcome !== "ok");
    expect(failed.length).toBeGreaterThan(35);
    expect(failed.length).toBeLessThan(85);
    expect(new Set(failed)).toEqual(new Set(["PROVIDER_ITEM_FAILED"]));
    expect(new Set(clock.sleepsMs)).toEqual(new Set([250]));
  });

  it("another seed, index or retry batch is another draw, another attempt is not", async () => {
    const drawn = async (seed: number, changes: object) =>
      (await outcomes(40, { latencyMs: 0, fail: 0.5, seed }, changes)).join();
    const all = [
      await drawn(1, {}),
      await drawn(2, {}),
      await drawn(1, { outputIndex: 1 }),
      await drawn(1, { origin: "child-batch" }),
    ];
    expect(new Set(all).size).toBe(4);
    expect(await drawn(1, { attempt: 2 })).toBe(all[0]);
  });
});
