import type { UpstreamFacts } from "../../src/domain/ports/image-provider.ts";
import { FakeProvider } from "./fake-provider.ts";

/** A fake provider whose images cost real money, or nothing. */
export class UpstreamProvider extends FakeProvider {
  readonly upstream: UpstreamFacts;

  constructor(options: { name?: string; isFree?: boolean; model?: string } = {}) {
    super({ ...options, name: options.name ?? "upstream" });
    const { model, isFree = false } = options;
    this.upstream = {
      type: "command",
      identity: `command ${this.name}`,
      fingerprint: this.name,
      isFree,
      takes: { maxReferences: 14, ratios: "any", tiers: "any", mimeTypes: "any", seeds: true },
      disabled: null,
      uses: ["batches", "realtime"],
      modelFor: (_requested, executed) => (model === undefined || model === executed ? executed : null),
      probe: async () => {},
    };
  }
}
