import type { ImageProvider } from "../domain/ports/image-provider.ts";
import type { Decoding } from "../imaging/decoding.ts";
import type { Clock } from "../kernel/clock.ts";

/** A provider as it is configured. */
export interface ProviderEntry {
  name: string;
  type: "procedural";
  /** Model ids, or `*` for all. */
  models: readonly string[];
  concurrency: number;
}

export interface ProviderDeps {
  clock: Clock;
  /** Decodes references, in turn with all other images of the service. */
  decoding: Decoding;
  simulate: { latencyMs: number; fail: number; seed: number };
}

type Create = (entry: ProviderEntry, deps: ProviderDeps) => Promise<ImageProvider>;

/** The only list of provider types. Each is loaded when the configuration names it. */
const CREATE: Record<ProviderEntry["type"], Create> = {
  procedural: async ({ name, concurrency, models }, deps) => {
    const { createProceduralProvider } = await import("./procedural/provider.ts");
    const serves = (model: string) => models.includes("*") || models.includes(model);
    return createProceduralProvider({ name, concurrency, models: serves, ...deps });
  },
};

/** The configured providers, in their order of preference. */
export function createProviders(
  entries: readonly ProviderEntry[],
  deps: ProviderDeps,
): Promise<ImageProvider[]> {
  return Promise.all(entries.map((entry) => CREATE[entry.type](entry, deps)));
}
