import { type ListedModel as BatchModel, listModels } from "../../client/models.ts";
import { listRealtimeModels } from "../../client/realtime.ts";
import type { Config } from "../../config/schema.ts";
import { identityOf } from "../../contract/data-directory.ts";
import { EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import { wordsOfPixels } from "../../contract/image-formats.ts";
import type { ProviderEntry, UpstreamEntry } from "../../contract/provider-entries.ts";
import { costText, FREE_DRAWINGS, formatUsd, microsToNumber, multiplyToMicros } from "../../kernel/money.ts";
import { isJobType, modelFacts, type Preset, presetOf } from "../../providers/catalogue/catalogue.ts";
import type { ListedModel } from "../../providers/vendor-list.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { withService } from "../connect/connect.ts";
import { compareModel, upstreamIdOf, vendorListOf } from "../model-check.ts";
import * as option from "../options.ts";
import { type Column, tableLines } from "../output/table.ts";
import { asking, upstreamOption } from "./shared-options.ts";

const options = {
  realtime: option.flag({
    flags: "--realtime",
    description: "list the models of `imgbatch generate` instead",
  }),
  upstream: {
    ...upstreamOption,
    description: `compare with the list of a vendor: ${upstreamOption.description}`,
  },
};

export const command = defineCommand({
  arguments: [{ name: "[model]", description: "a model id: what this one takes, and at which prices" }],
  options,
  examples: [
    "imgbatch models",
    "imgbatch models vendorx-3-pro-image",
    "imgbatch models --realtime",
    "imgbatch models --upstream google",
  ],
  notes: [
    "With --upstream the vendor's own list is read, which costs nothing; no service is asked. Exit 4 means that the vendor does not offer the default model.",
  ],
  exits: [...asking, "someFailed"],
  run,
});

/** A model of a list, with its price in words, and lines about what it takes. */
interface ShownModel {
  id: string;
  raw: unknown;
  cost: string;
  takes: readonly string[];
}

/**
 * `imgbatch models`: lists the key's models, for batches or for real time, with the price of an image. On a terminal, and of a
 * model that is named, it shows what each takes.
 */
function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { signal, options, results } = context;
  const [named] = context.arguments;
  if (options.upstream !== undefined) {
    if (named === undefined) return compareWithVendor(context);
    const message = "--upstream compares all models of a vendor: leave out the model.";
    throw new ImgbatchError("USAGE", message, { param: "--upstream" });
  }
  return withService(context, { workers: false }, async ({ http }) => {
    const all: ShownModel[] = options.realtime
      ? (await listRealtimeModels(http, signal)).map(({ id, costsMicroUsd, isPlay, raw }) => ({
          id,
          raw,
          cost: isPlay
            ? FREE_DRAWINGS
            : Object.entries(costsMicroUsd ?? {})
                .map(([size, micros]) => `${size} ${formatUsd(micros)}`)
                .join("  "),
          takes: [],
        }))
      : (await listModels(http, signal)).map((model) => {
          const { id, imageCostMicroUsd: micros, isPlay, raw } = model;
          const cost = micros === null ? "" : costText({ micros, isPlay }, "exact");
          return { id, raw, cost, takes: takenBy(model) };
        });
    const models = named === undefined ? all : [find(all, named)];
    const showsAll = named !== undefined || results.isForPeople;
    return {
      json: { models: models.map(({ raw }) => raw) },
      lines: models.flatMap(({ id, cost, takes }) => [
        cost === "" ? id : `${id}  ${cost}`,
        ...(showsAll ? takes.map((line) => `  ${line}`) : []),
      ]),
    };
  });
}

/** Throws `BATCH_IMAGE_INVALID_MODEL` for an id that is not in the list. */
function find(models: readonly ShownModel[], id: string): ShownModel {
  const found = models.find((model) => model.id === id);
  if (found !== undefined) return found;
  const known = models.map((model) => model.id).join(", ");
  const message = `There is no model ${JSON.stringify(id)} here: there are ${known}.`;
  throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", message, { param: "<model>" });
}

/** Says what the prompts of a model can ask for, a line each. Prices stand beside what they are of. */
function takenBy({ options, prices, isPlay, maxReferenceImages: most }: BatchModel): string[] {
  const references =
    most === null ? [] : [most === 0 ? "no reference images" : `reference images: up to ${most}`];
  if (options === null) return references;
  const { sizes, qualities, defaultQuality, pixels } = options;
  const priced = (quality: string | null) =>
    sizes.map((size) => {
      const price = prices.find((each) => each.size === size && each.quality === quality);
      return isPlay || price === undefined ? size : `${size} ${formatUsd(price.imageMicroUsd)}`;
    });
  const mark = (quality: string) => (quality === defaultQuality ? `${quality} (default)` : quality);
  const shapes =
    qualities.length === 0
      ? [`sizes: ${priced(null).join(", ")}`]
      : qualities.map((quality) => `quality ${mark(quality)}: ${priced(quality).join(", ")}`);
  return [
    ...shapes,
    ...(pixels === null ? [] : [`pixels: ${pixels === "any" ? "any" : wordsOfPixels(pixels)}`]),
    `aspect ratios: ${options.aspectRatios.join(", ")}`,
    ...(options.backgrounds.length === 0 ? [] : [`background: ${options.backgrounds.join(", ")}`]),
    options.seed ? `seed: 0 to ${options.maxSeed}` : "no seed",
    options.negativePrompt ? "negative prompt" : "no negative prompt",
    ...references,
  ];
}

/** A model of a vendor, of ours, or both, as `--json` prints it. */
interface VendorModel {
  id: string;
  state: "offered" | "gone" | "new" | "unknown";
  is_default: boolean;
  /** US dollars by size, as the upstream charges in the default quality; null when they are not known. */
  prices: Record<string, number> | null;
  as_of: string | null;
  source: string | null;
  retires: string | null;
  successor: string | null;
  /** The flags that use a model which is not known here. */
  use: string | null;
}

/** Compares the models of an upstream with the vendor's own list. */
async function compareWithVendor(context: CommandContext): Promise<CommandResult> {
  const { signal, clock, output } = context;
  const { config, entry } = await entryOf(context);
  const preset = presetOf(entry) ?? ownPreset(entry);
  const { requireKeys } = await import("../connect/embedded.ts");
  requireKeys({ providers: [entry] });
  const list = await vendorListOf(entry, signal, true).catch((error: unknown) => {
    throw asOwnError(error);
  });
  if (list === null)
    output.note(`how ${preset.title} lists its models is not known: these are the ones that are known here`);
  const ours = await Promise.all(
    config.models.flatMap((model) => {
      const upstreamId = upstreamIdOf(entry, model);
      if (upstreamId === null) return [];
      return compareModel(preset, { id: model.id, upstreamId }, list, clock.nowMs());
    }),
  );
  const known: VendorModel[] = ours.map(({ id, isOffered, retires, successor }, at) => {
    const model = config.models.find((each) => each.id === id);
    const share = preset.isOfJobs ? (model?.jobPrice ?? 1) : 1;
    const prices = Object.entries(model?.prices ?? {}).map(
      ([size, usd]) => [size, microsToNumber(multiplyToMicros([usd, share]))] as const,
    );
    const hasPrices = prices.length > 0;
    return {
      id,
      state: isOffered === null ? "unknown" : isOffered ? "offered" : "gone",
      is_default: at === 0,
      prices: hasPrices ? Object.fromEntries(prices) : null,
      as_of: model?.asOf ?? null,
      source: modelFacts(preset.name, id)?.source ?? null,
      retires,
      successor: isOffered === false || retires !== null ? (successor?.id ?? null) : null,
      use: hasPrices ? null : `--model ${id} --unit-cost USD`,
    };
  });
  const listed = new Set(config.models.map((model) => upstreamIdOf(entry, model)));
  const isNew = ({ id, aliases, isOfImages }: ListedModel) =>
    isOfImages && ![id, ...aliases].some((each) => listed.has(each));
  const others = (list ?? []).filter(isNew).map(
    ({ id, retires }): VendorModel => ({
      id,
      state: "new",
      is_default: false,
      prices: null,
      as_of: null,
      source: null,
      retires,
      successor: null,
      use: `--model ${id} --unit-cost USD`,
    }),
  );
  const models = [...known, ...others];
  const [first] = known;
  const isGone = first?.state === "gone";
  return {
    exitCode: isGone ? EXIT_CODES.someFailed.code : EXIT_CODES.ok.code,
    json: { upstream: entry.name, address: identityOf(entry).address, default: first?.id ?? null, models },
    lines: tableLines(COLUMNS, models),
    next: isGone && first?.successor ? `use another model: --model ${first.successor}` : null,
  };
}

/** The provider that `--upstream` names. Throws `USAGE` for drawings, and `CONSENT_REQUIRED` as `loadConfig` does. */
async function entryOf(context: CommandContext): Promise<{ config: Config; entry: UpstreamEntry }> {
  const { readConfig, requireAgreed } = await import("../../config/load.ts");
  const { configChoice } = await import("../connect/service-config.ts");
  // The vendor's own list, whatever answers in its place.
  const { config, found } = readConfig({ ...configChoice(context), replay: null });
  if (found !== null) requireAgreed(found);
  const entry = config.providers.find(isUpstream);
  if (entry !== undefined) return { config, entry };
  const message = `--upstream ${JSON.stringify(context.options.upstream)}: it draws, and has no list of models.`;
  throw new ImgbatchError("USAGE", message, { param: "--upstream" });
}

function isUpstream(entry: ProviderEntry): entry is UpstreamEntry {
  return entry.type !== "procedural" && entry.type !== "replay";
}

/** What is known of the models behind a provider of one's own: nothing. */
function ownPreset({ name, type }: UpstreamEntry): Preset {
  const provider = { type };
  const isOfJobs = isJobType(type);
  return { name, title: name, preparation: null, keyVariable: null, provider, isOfJobs, models: [] };
}

/** What an upstream says, as an error of the command line. */
function asOwnError(error: unknown): unknown {
  const { name, message, trouble } = error as Error & { trouble?: string | null };
  if (name !== "ProviderError") return error;
  const code =
    trouble === "credential"
      ? "PROVIDER_CREDENTIAL"
      : trouble === "forbidden"
        ? "PROVIDER_FORBIDDEN"
        : "PROVIDER_UNREACHABLE";
  return new ImgbatchError(code, message, {
    advice: "check the key, the network and the address, then run it again",
  });
}

const STATES: Record<VendorModel["state"], string> = {
  offered: "offered",
  gone: "not offered any more",
  new: "offered, not known here",
  unknown: "known here",
};
const COLUMNS: readonly Column<VendorModel>[] = [
  { title: "model", of: ({ id, is_default }) => (is_default ? `${id} (default)` : id) },
  { title: "state", of: ({ state }) => STATES[state] },
  { title: "ends", of: ({ retires }) => retires ?? "" },
  {
    title: "price",
    of: ({ prices, as_of }) =>
      prices === null
        ? ""
        : `${Object.entries(prices)
            .map(([size, price]) => `${size} ${formatUsd(multiplyToMicros([price]))}`)
            .join(", ")}${as_of === null ? "" : ` (${as_of})`}`,
  },
  { title: "use", of: ({ use, successor }) => (successor ? `--model ${successor}` : (use ?? "")) },
];
