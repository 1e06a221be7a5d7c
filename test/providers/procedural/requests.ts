import { imageSizePx } from "../../../src/contract/image-formats.ts";
import type { ImageRequest } from "../../../src/domain/ports/image-provider.ts";
import type { Clock } from "../../../src/kernel/clock.ts";
import type { Simulation } from "../../../src/providers/procedural/provider.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { imageRequest } from "../upstream/scripted-server.ts";

/** A request for a 1K square PNG. */
export function request(prompt: string, changes: Partial<ImageRequest> = {}): ImageRequest {
  const { tier = "1K", ratio = "1:1" } = changes;
  const size = imageSizePx(tier, ratio);
  return imageRequest({ model: "test-model", prompt, tier, ratio, size, seed: 1, ...changes });
}

/** Generates with a provider of its own. */
export function generate(
  prompt: string,
  changes: Partial<ImageRequest> = {},
  {
    clock = new InstantClock(),
    signal = new AbortController().signal,
    simulate,
  }: { clock?: Clock; signal?: AbortSignal; simulate?: Simulation } = {},
) {
  const facts = { name: "local", concurrency: 2, models: () => true, clock };
  const provider = createProceduralProvider({ ...facts, ...(simulate && { simulate }) });
  return provider.generate(request(prompt, changes), signal);
}

/** The one image of a prompt. */
export async function draw(prompt: string, changes: Partial<ImageRequest> = {}): Promise<Buffer> {
  const { images } = await generate(prompt, changes);
  const [image] = images;
  if (!Buffer.isBuffer(image)) throw new Error("no image came");
  return image;
}
