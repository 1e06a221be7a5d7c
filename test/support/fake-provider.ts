import sharp from "sharp";
import type { GeneratedImages, ImageRequest, ItemProvider } from "../../src/domain/ports/image-provider.ts";
import type { Gate } from "./gate.ts";

type Answer = GeneratedImages | Promise<GeneratedImages>;

/** A provider that answers what the test says, and remembers what it was asked. */
export class FakeProvider implements ItemProvider {
  readonly kind = "item";
  readonly name: string;
  readonly concurrency: number;
  /** The one model that it makes images for; null for any. */
  readonly model: string | null;
  readonly requests: ImageRequest[] = [];
  running = 0;
  maxRunning = 0;
  answer: (request: ImageRequest, signal: AbortSignal) => Answer;

  constructor(options: { name?: string; concurrency?: number; model?: string } = {}) {
    this.name = options.name ?? "procedural";
    this.concurrency = options.concurrency ?? 2;
    this.model = options.model ?? null;
    this.answer = async () => made(await tinyPng());
  }

  serves(model: string): boolean {
    return this.model === null || this.model === model;
  }

  async generate(request: ImageRequest, signal: AbortSignal): Promise<GeneratedImages> {
    this.requests.push(request);
    this.running++;
    this.maxRunning = Math.max(this.maxRunning, this.running);
    try {
      return await this.answer(request, signal);
    } finally {
      this.running--;
    }
  }

  async close(): Promise<void> {}
}

export function made(...images: Buffer[]): GeneratedImages {
  return { images, modelVersion: "fake/1" };
}

/** An answer that waits for a gate. */
export function madeAfter(opened: Gate<void>): FakeProvider["answer"] {
  return async () => {
    await opened.promise;
    return made(await tinyPng());
  };
}

const pngs = new Map<number, Promise<Buffer>>();

/** A real PNG of a few pixels; another number gives other bytes. Each is encoded once, and each caller gets its own copy. */
export async function tinyPng(shade = 0): Promise<Buffer> {
  const background = { r: shade % 256, g: (shade >> 8) % 256, b: 120 };
  const create = { width: 8, height: 8, channels: 3 as const, background };
  const png = pngs.get(shade) ?? sharp({ create }).png().toBuffer();
  pngs.set(shade, png);
  return Buffer.from(await png);
}

export function tinyJpeg(): Promise<Buffer> {
  return sharp({ create: { width: 8, height: 8, channels: 3, background: "#345" } })
    .jpeg()
    .toBuffer();
}
