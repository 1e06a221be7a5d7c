import { identityOf, type ProviderIdentity } from "../contract/data-directory.ts";
import type {
  EntryOf,
  JobEntry,
  ProviderEntry,
  ProviderType,
  UpstreamEntry,
} from "../contract/provider-entries.ts";
import { IDEMPOTENCY_KEY_HEADER } from "../contract/routes.ts";
import type { ImageProvider } from "../domain/ports/image-provider.ts";
import type { Decoding } from "../imaging/decoding.ts";
import { isApiKey } from "../kernel/ids.ts";
import type { Recording } from "./replay/provider.ts";
import type { AdapterDeps, UpstreamAdapter } from "./upstream/adapter.ts";
import type { JobAdapter } from "./upstream/provider.ts";

interface ProviderDeps extends AdapterDeps {
  /** Decodes references, in turn with all other images of the service. */
  decoding: Decoding;
  simulate: { latencyMs: number; fail: number; seed: number };
  /** Left out: nothing is recorded. */
  recording?: Recording;
}

type Create<Type extends ProviderType> = (entry: EntryOf<Type>, deps: ProviderDeps) => Promise<ImageProvider>;

/** The only list of provider types. Each is loaded when the configuration names it. */
const CREATE: { [Type in ProviderType]: Create<Type> } = {
  procedural: async ({ name, concurrency, models }, deps) => {
    const { createProceduralProvider } = await import("./procedural/provider.ts");
    const serves = (model: string) => models.includes("*") || models.includes(model);
    return createProceduralProvider({ name, concurrency, models: serves, ...deps });
  },
  native: (written, deps) => {
    const entry = withRepeats(written, deps);
    const create = async () => (await import("./native/provider.ts")).createNativeAdapter(entry, deps);
    return ofItems(entry, deps, create);
  },
  "native-batch": (entry, deps) =>
    ofJobs(entry, deps, async () =>
      (await import("./native/provider.ts")).createNativeBatchAdapter(entry, deps),
    ),
  openai: (written, deps) => {
    const entry = withRepeats(written, deps);
    const create = async () => (await import("./openai/provider.ts")).createOpenaiAdapter(entry, deps);
    return ofItems(entry, deps, create);
  },
  "openai-batch": (entry, deps) =>
    ofJobs(entry, deps, async () =>
      (await import("./openai/provider.ts")).createOpenaiBatchAdapter(entry, deps),
    ),
  sdapi: (entry, deps) =>
    ofItems(entry, deps, async () => (await import("./sdapi/provider.ts")).createSdapiAdapter(entry, deps)),
  command: (entry, deps) =>
    ofItems(entry, deps, async () =>
      (await import("./command/provider.ts")).createCommandAdapter(entry, deps),
    ),
  task: (entry, deps) =>
    ofItems(entry, deps, async () => (await import("./task/provider.ts")).createTaskAdapter(entry, deps)),
  replay: async (entry, deps) => {
    const of = await create(entry.of, entry.records ? deps : { ...deps, secret: () => null });
    return (await import("./replay/provider.ts")).createReplayProvider(entry, of, deps);
  },
};

/** Another imgbatch is known by its key. It makes an image once for each `Idempotency-Key`, however often it is asked. */
function withRepeats<Entry extends EntryOf<"native" | "openai">>(
  entry: Entry,
  { secret }: AdapterDeps,
): Entry {
  const key = entry.apiKeyEnv === null ? null : secret(entry.apiKeyEnv);
  const isOurs = key !== null && isApiKey(key);
  return entry.idempotencyKey === null && isOurs
    ? { ...entry, idempotencyKey: IDEMPOTENCY_KEY_HEADER }
    : entry;
}

// What all upstreams have in common loads with the first of them: a service that only draws needs none of it.
async function ofItems(entry: UpstreamEntry, deps: AdapterDeps, create: () => Promise<UpstreamAdapter>) {
  const { asItemProvider } = await import("./upstream/provider.ts");
  return asItemProvider(entry, await create(), deps);
}

async function ofJobs(entry: JobEntry, deps: AdapterDeps, create: () => Promise<JobAdapter>) {
  const { asJobProvider } = await import("./upstream/provider.ts");
  return asJobProvider(entry, await create(), deps);
}

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
