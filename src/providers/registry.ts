import { identityOf, type ProviderIdentity } from "../contract/data-directory.ts";
import type { EntryOf, ProviderEntry, ProviderType } from "../contract/provider-entries.ts";
import type { ImageProvider } from "../domain/ports/image-provider.ts";
import type { Decoding } from "../imaging/decoding.ts";
import type { AdapterDeps } from "./upstream/adapter.ts";
import { asItemProvider } from "./upstream/item-provider.ts";
import { asJobProvider } from "./upstream/job-provider.ts";

interface ProviderDeps extends AdapterDeps {
  /** Decodes references, in turn with all other images of the service. */
  decoding: Decoding;
  simulate: { latencyMs: number; fail: number; seed: number };
}

type Create<Type extends ProviderType> = (entry: EntryOf<Type>, deps: ProviderDeps) => Promise<ImageProvider>;

/** The only list of provider types. Each is loaded when the configuration names it. */
const CREATE: { [Type in ProviderType]: Create<Type> } = {
  procedural: async ({ name, concurrency, models }, deps) => {
    const { createProceduralProvider } = await import("./procedural/provider.ts");
    const serves = (model: string) => models.includes("*") || models.includes(model);
    return createProceduralProvider({ name, concurrency, models: serves, ...deps });
  },
  native: async (entry, deps) => {
    const { createNativeAdapter } = await import("./native/provider.ts");
    return asItemProvider(entry, createNativeAdapter(entry, deps), deps);
  },
  "native-batch": async (entry, deps) => {
    const { createNativeBatchAdapter } = await import("./native-batch/provider.ts");
    return asJobProvider(entry, createNativeBatchAdapter(entry, deps), deps);
  },
  openai: async (entry, deps) => {
    const { createOpenaiAdapter } = await import("./openai/provider.ts");
    return asItemProvider(entry, createOpenaiAdapter(entry, deps), deps);
  },
  "openai-batch": async (entry, deps) => {
    const { createOpenaiBatchAdapter } = await import("./openai-batch/provider.ts");
    return asJobProvider(entry, createOpenaiBatchAdapter(entry, deps), deps);
  },
  sdapi: async (entry, deps) => {
    const { createSdapiAdapter } = await import("./sdapi/provider.ts");
    return asItemProvider(entry, createSdapiAdapter(entry, deps), deps);
  },
  command: async (entry, deps) => {
    const { createCommandAdapter } = await import("./command/provider.ts");
    return asItemProvider(entry, createCommandAdapter(entry, deps), deps);
  },
};

/** The configured providers, in their order of preference. */
export function createProviders(
  entries: readonly ProviderEntry[],
  deps: ProviderDeps,
): Promise<ImageProvider[]> {
  return Promise.all(entries.map((entry) => create(entry, deps)));
}

/** The facts by which other processes recognise these providers, and know their state. */
export function identitiesOf(
  entries: readonly ProviderEntry[],
  providers: readonly ImageProvider[],
): ProviderIdentity[] {
  return entries.map((entry, at) => ({
    ...identityOf(entry),
    disabled: providers[at]?.upstream?.disabled ?? undefined,
    fingerprint: providers[at]?.upstream?.fingerprint,
  }));
}

function create<Type extends ProviderType>(entry: EntryOf<Type>, deps: ProviderDeps): Promise<ImageProvider> {
  const type: Type = entry.type as Type;
  return (CREATE[type] as Create<Type>)(entry, deps);
}
