import type { ImageRequest, UpstreamFacts } from "../../src/domain/ports/image-provider.ts";
import { ProviderError, type Trouble } from "../../src/domain/ports/image-provider.ts";
import { FakeProvider, made, tinyPng } from "./fake-provider.ts";
import { type Gate, gate } from "./gate.ts";

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
  options: { retryAfterMs?: number; said?: string } = {},
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
