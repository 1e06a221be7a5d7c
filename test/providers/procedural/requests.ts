import { imageSizePx } from "../../../src/contract/image-formats.ts";
import type { ImageRequest } from "../../../src/domain/ports/image-provider.ts";
import { DEFAULT_OPTIONS } from "../../../src/domain/ports/image-provider.ts";
import type { Clock } from "../../../src/kernel/clock.ts";
import type { Simulation } from "../../../src/providers/procedural/provider.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import type { RequestChanges } from "../upstream/scripted-server.ts";
import { imageRequest } from "../upstream/scripted-server.ts";

/** A request for a 1K square PNG. */
export function request(prompt: string, changes: RequestChanges = {}): ImageRequest {
  const options = { ...DEFAULT_OPTIONS, ...changes.options };
  const pixels = imageSizePx(options.size, options.ratio);
  return imageRequest({ model: "test-model", prompt, pixels, seed: 1, ...changes, options });
}

/** Generates with a provider of its own. */
export function generate(
  prompt: string,
  changes: RequestChanges = {},
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
export async function draw(prompt: string, changes: RequestChanges = {}): Promise<Buffer> {
  const { images } = await generate(prompt, changes);
  const [image] = images;
  if (!Buffer.isBuffer(image)) throw new Error("no image came");
  return image;
}
