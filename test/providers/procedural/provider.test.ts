import { describe, expect, it } from "vitest";
import { IMAGE_MIME_TYPES, sniffImageType } from "../../../src/contract/image-formats.ts";
import { InvalidImageError } from "../../../src/domain/ports/image-inspector.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import { draw, generate, notingClock, request } from "./requests.ts";

const inspector = sharpInspector(new Decoding());

const signal = new AbortController().signal;

describe("the procedural provider", () => {
  it("the model version of its result says that the picture is a procedural drawing", async () => {
    expect((await generate("a fox")).modelVersion).toMatch(/^test-model \(procedural\/\d+\)$/);
  });

  it("[DRAW-12] fail gives the code, whatever batch it is", async () => {
    const failure = generate("a fox [[fail:EMPTY_IMAGE_OUTPUT]]", { origin: "child-batch" });
    await expect(failure).rejects.toMatchObject({ code: "EMPTY_IMAGE_OUTPUT", source: "provider" });
  });

  it("[DRAW-12] fail-once fails in a first batch and draws in a retry", async () => {
    const prompt = "a fox [[fail-once:PROVIDER_TIMEOUT]]";
    await expect(generate(prompt)).rejects.toMatchObject({ code: "PROVIDER_TIMEOUT", retryable: true });
    expect((await generate(prompt, { origin: "child-batch" })).images).toHaveLength(1);
  });

  it.each([
    [429, "PROVIDER_RATE_LIMITED", true],
    [504, "PROVIDER_TIMEOUT", true],
    [408, "PROVIDER_TIMEOUT", true],
    [500, "PROVIDER_ITEM_FAILED", true],
    [503, "PROVIDER_ITEM_FAILED", true],
    [400, "INVALID_ARGUMENT", false],
    [404, "INVALID_ARGUMENT", false],
  ])("[DRAW-12] status %i is %s, retryable: %s", async (status, code, retryable) => {
    const failure = generate(`a fox [[status:${status}]]`);
    await expect(failure).rejects.toMatchObject({ code, retryable, retryAfterMs: null });
  });

  it("[DRAW-12] retry-after goes with the failure of a status or a code", async () => {
    const limited = generate("[[status:429]] a fox [[retry-after:3s]]");
    await expect(limited).rejects.toMatchObject({ retryAfterMs: 3000 });
    const failed = generate("[[retry-after:1s]] a fox [[fail:PROVIDER_RATE_LIMITED]]");
    await expect(failed).rejects.toMatchObject({ retryAfterMs: 1000, retryable: true });
  });

  it("[DRAW-12] refuse is a safety block, and final", async () => {
    await expect(generate("[[refuse]]")).rejects.toMatchObject({ code: "SAFETY_BLOCKED", retryable: false });
  });

  it("[DRAW-12] empty gives no image, and images gives several that differ", async () => {
    expect((await generate("a fox [[empty]]")).images).toEqual([]);
    const { images } = await generate("a fox [[images:2]]");
    expect(images).toHaveLength(2);
    expect(images[0]).not.toEqual(images[1]);
  });

  it("[DRAW-12] bad-bytes begin as the asked type and do not decode", async () => {
    for (const mimeType of IMAGE_MIME_TYPES) {
      const bytes = await draw("a fox [[bad-bytes]]", { mimeType });
      expect(sniffImageType(bytes)).toBe(mimeType);
      await expect(inspector.inspect(bytes, { maxPixels: 1e9 })).rejects.toThrow(InvalidImageError);
    }
  });

  it("[DRAW-12] delay waits on the clock before it draws or fails", async () => {
    const clock = notingClock();
    const provider = createProceduralProvider({ name: "p", concurrency: 1, models: () => true, clock });
    await expect(provider.generate(request("[[delay:2s]] [[refuse]]"), signal)).rejects.toThrow();
    expect(clock.slept).toEqual([2000]);
  });

  it("[DRAW-12] a directive is not drawn: the picture is that of the remaining text, and says the whole prompt", async () => {
    const [plain, directed] = [await draw("a fox"), await draw("a fox [[delay:1ms]]")];
    expect(directed.includes("a fox [[delay:1ms]]")).toBe(true);
    const { default: sharp } = await import("sharp");
    expect((await sharp(directed).raw().toBuffer()).equals(await sharp(plain).raw().toBuffer())).toBe(true);
  });

  it("an aborted request rejects with the signal's reason", async () => {
    const reason = new Error("stop");
    const provider = createProceduralProvider({
      name: "p",
      concurrency: 1,
      models: () => true,
      clock: notingClock(),
    });
    await expect(provider.generate(request("a fox"), AbortSignal.abort(reason))).rejects.toBe(reason);
    await expect(provider.generate(request("a fox [[delay:1h]]"), AbortSignal.abort(reason))).rejects.toBe(
      reason,
    );
    const controller = new AbortController();
    const running = provider.generate(request("a fox"), controller.signal);
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
  });

  it("simulation adds its latency and fails a reproducible share", async () => {
    const clock = notingClock();
    const simulate = { latencyMs: 250, fail: 0.3, seed: 7 };
    const provider = createProceduralProvider({
      name: "p",
      concurrency: 1,
      models: () => true,
      clock,
      simulate,
    });
    const outcomes = () =>
      Promise.all(
        Array.from({ length: 200 }, (_, i) =>
          provider.generate(request(`fox ${i} [[empty]]`), signal).then(
            () => "ok",
            (error) => String(error.code),
          ),
        ),
      );
    const first = await outcomes();
    expect(await outcomes()).toEqual(first);
    const failed = first.filter((outcome) => outcome !== "ok");
    expect(failed.length).toBeGreaterThan(35);
    expect(failed.length).toBeLessThan(85);
    expect(new Set(failed)).toEqual(new Set(["PROVIDER_ITEM_FAILED"]));
    expect(new Set(clock.slept)).toEqual(new Set([250]));
  });

  it("another seed, index or retry batch is another draw, another attempt is not", async () => {
    const outcome = async (seed: number, changes: object) => {
      const simulate = { latencyMs: 0, fail: 0.5, seed };
      const provider = createProceduralProvider({
        name: "p",
        concurrency: 1,
        models: () => true,
        clock: notingClock(),
        simulate,
      });
      const prompts = Array.from({ length: 40 }, (_, i) => request(`fox ${i} [[empty]]`, changes));
      const all = await Promise.all(
        prompts.map((one) =>
          provider.generate(one, signal).then(
            () => 1,
            () => 0,
          ),
        ),
      );
      return all.join("");
    };
    const all = [
      await outcome(1, {}),
      await outcome(2, {}),
      await outcome(1, { outputIndex: 1 }),
      await outcome(1, { origin: "child-batch" }),
    ];
    expect(new Set(all).size).toBe(4);
    expect(await outcome(1, { attempt: 2 })).toBe(all[0]);
  });
});
