import sharp from "sharp";
import {
  type GeneratedImages,
  type ImageRequest,
  type ItemProvider,
  ProviderError,
  type Trouble,
  type UpstreamFacts,
} from "../../src/domain/ports/image-provider.ts";
import { type Gate, gate } from "./gate.ts";

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

/** A paid upstream that does what the test says. Every request counts as sent. */
export class FakeUpstream extends FakeProvider {
  readonly upstream: UpstreamFacts;

  constructor(name: string, facts: Partial<UpstreamFacts> & { concurrency?: number } = {}) {
    const { concurrency = 2, ...rest } = facts;
    super({ name, concurrency });
    this.upstream = {
      type: "native",
      identity: `native http://${name}`,
      fingerprint: `${name}-1`,
      isFree: false,
      takes: { maxReferences: 14, ratios: "any", tiers: "any" },
      disabled: null,
      uses: ["batches", "realtime"],
      modelFor: (_, executed) => executed,
      probe: async () => {},
      ...rest,
    };
    this.answer = async () => made(await tinyPng());
  }

  override async generate(request: ImageRequest, signal: AbortSignal, onSent: () => void = () => {}) {
    onSent();
    return super.generate(request, signal);
  }

  /** How often each prompt was asked for. */
  get asked(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { prompt } of this.requests) counts[prompt] = (counts[prompt] ?? 0) + 1;
    return counts;
  }
}

const CODES = { limited: "PROVIDER_RATE_LIMITED", ambiguous: "PROVIDER_TIMEOUT" } as const;

/** The failure of an upstream with a trouble. */
export function troubled(
  trouble: Trouble,
  options: { retryAfterMs?: number; said?: string; isOfModel?: boolean } = {},
): ProviderError {
  const code = trouble === "limited" || trouble === "ambiguous" ? CODES[trouble] : "PROVIDER_ITEM_FAILED";
  return new ProviderError(code, `the upstream has a trouble: ${trouble}`, { trouble, ...options });
}

/** An upstream whose requests are each held back, before they leave, by the next gate of `turns`. */
export function upstreamInTurns(name: string): { upstream: FakeUpstream; turns: Gate<void>[] } {
  const upstream = new FakeUpstream(name);
  const generate = upstream.generate.bind(upstream);
  const turns: Gate<void>[] = [];
  upstream.generate = async (...asked) => {
    const turn = gate();
    turns.push(turn);
    await turn.promise;
    return generate(...asked);
  };
  return { upstream, turns };
}
