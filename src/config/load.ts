import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { createScanner, type ParseError, parse as parseJsonc, printParseErrorCode } from "jsonc-parser";
import type { z } from "zod";
import { ImgbatchError } from "../contract/errors.ts";
import { DEFAULT_LIMITS, inWords } from "../contract/limits.ts";
import type { ProviderEntry, ReplayEntry } from "../contract/provider-entries.ts";
import { programName } from "../kernel/command-line.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { makeDirectory, readRegularFile, writeFileDurably } from "../kernel/files.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { fieldsOf, isObject, MOST_JSON_LEVELS, TooDeepJson } from "../kernel/json.ts";
import {
  findPreset,
  isJobType,
  meantUpstream,
  modelEntries,
  type Preset,
  UPSTREAM_NAMES,
} from "../providers/catalogue/catalogue.ts";
import {
  agreementsFile,
  CONFIG_FILE,
  type ConfigChoice,
  NO_CONFIG_FILE,
  type PricedModel,
  VENDOR_NAMES,
} from "./paths.ts";
import { type Config, configSchema, DEFAULT_MODELS, DEFAULT_PROVIDERS } from "./schema.ts";

/**
 * Reads the configuration from its file. Without a file it returns the defaults. Comments are allowed. Throws
 * `INVALID_CONFIG`, naming the file and every unknown key or wrong value, and `CONSENT_REQUIRED` for a file that the
 * working directory alone names and that the user has not agreed to.
 */
export function loadConfig(choice: ConfigChoice): Config {
  const { config, found } = readConfig(choice);
  if (found !== null) requireAgreed(found);
  return config;
}

/**
 * Reads the configuration like `loadConfig`, without asking for consent: use it to report, never to act. Returns the file
 * with it if consent is needed.
 */
export function readConfig(choice: ConfigChoice): { config: Config; found: FoundFile | null } {
  const { upstream = null, besides = [], vendor = null, file, cwd, replaced = [] } = choice;
  const { value, text, source } = readConfigFile(choice);
  if (!isObject(value)) return { config: parseConfig(value, source), found: null };
  const { vendor: ofFile = {} } = value;
  const directory =
    choice.replay !== undefined
      ? choice.replay && resolve(cwd, choice.replay)
      : typeof value.replay === "string"
        ? resolve(cwd, dirname(file ?? ""), value.replay)
        : undefined;
  const chosen = {
    ...(directory === undefined ? {} : { replay: directory }),
    ...(upstream === null ? {} : ofUpstreams(value, source, [upstream, ...besides])),
    ...(vendor === null || !isObject(ofFile) ? {} : { vendor: { ...ofFile, preset: vendor } }),
  };
  const config = parseConfig({ ...value, ...chosen }, source, choice);
  if (file !== undefined || text === null) return { config, found: null };
  const isReplayed = config.replay !== null && choice.records !== true;
  // Without providers of its own, the file says nothing about those of `--upstream`.
  const isOfFile = upstream === null || entriesOf(value).length > 0;
  const { models, groups, providers, ...others } = value;
  const picked = "providers" in chosen ? chosen.providers : providers;
  const named = fieldsToAgree(
    isOfFile && !isReplayed ? { ...others, models, groups, providers: picked } : others,
    config,
  );
  const fields = replaced === "all" ? [] : named.filter((field) => !replaced.includes(field));
  return { config, found: fields.length === 0 ? null : { path: source, text, fields } };
}

/**
 * Returns the name of the provider that a name in `--upstream` stands for. Throws `USAGE` for a name that is not known. It
 * asks for no consent.
 */
export function upstreamName(choice: Pick<ConfigChoice, "file" | "cwd">, upstream: string): string {
  const { config } = readConfig({ file: choice.file, cwd: choice.cwd, upstream, replay: null });
  return config.providers[0]?.name ?? upstream;
}

/** More than any configuration has. */
const MOST_FOUND_BYTES = 16 * 1024 * 1024;

function readConfigFile({ file, cwd }: ConfigChoice): {
  value: unknown;
  text: string | null;
  source: string;
} {
  if (file === NO_CONFIG_FILE) return { value: {}, text: null, source: "built-in defaults" };
  const path = resolve(cwd, file ?? CONFIG_FILE);
  let text: string;
  try {
    // A file that was named may be a pipe. A stranger's must not hang the command, or fill the memory.
    text =
      file === undefined ? readRegularFile(path, MOST_FOUND_BYTES).toString() : readFileSync(path, "utf8");
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
    if (isMissing && file === undefined) return { value: {}, text: null, source: "built-in defaults" };
    const why: Record<string, string> = { EINVAL: ": it is not a file", EFBIG: ": it is too large" };
    const { code = "" } = error as NodeJS.ErrnoException;
    const message = `${path}: cannot be read${why[code] ?? ""}`;
    throw new ImgbatchError("INVALID_CONFIG", message, { cause: error });
  }
  const deep = tooDeepLine(text);
  if (deep !== null)
    throw new ImgbatchError("INVALID_CONFIG", `${path}:${deep}: ${new TooDeepJson().message}`);
  const errors: ParseError[] = [];
  const value: unknown = parseJsonc(text, errors, { allowTrailingComma: true });
  const first = errors[0];
  if (first) {
    const line = text.slice(0, first.offset).split("\n").length;
    throw new ImgbatchError("INVALID_CONFIG", `${path}:${line}: ${words(printParseErrorCode(first.error))}`);
  }
  return { value, text, source: path };
}

/** Returns the line, from 1, where JSON with comments is nested too deep; null for none. The parser would overflow the call stack. */
function tooDeepLine(text: string): number | null {
  const scanner = createScanner(text, true);
  let depth = 0;
  for (let token = scanner.scan(); token !== END_OF_TEXT; token = scanner.scan()) {
    if (token === OPEN_BRACE || token === OPEN_BRACKET) depth++;
    else if (token === CLOSE_BRACE || token === CLOSE_BRACKET) depth--;
    if (depth > MOST_JSON_LEVELS) return scanner.getTokenStartLine() + 1;
  }
  return null;
}

/** The tokens of the scanner, whose names exist for the compiler only. */
const [OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET, END_OF_TEXT] = [1, 2, 3, 4, 17];

/** `ValueExpected` as plain words. */
const words = (name: string) => name.replaceAll(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();

/** Checks a configuration value and fills in the defaults. `source` names it in errors. */
export function parseConfig(
  value: unknown,
  source: string,
  {
    priced = null,
    records = false,
    concurrency,
  }: Pick<ConfigChoice, "priced" | "records" | "concurrency"> = {},
): Config {
  const unknown = unknownPreset(value);
  if (unknown !== null) throw new ImgbatchError("INVALID_CONFIG", `${source}: ${unknown}`);
  const typed = concurrency === undefined ? value : withConcurrency(value, concurrency);
  const filled = withVendorPreset(withPresets(withPromptChars(typed), priced));
  const parsed = configSchema.safeParse(filled, { error: inWords });
  if (parsed.success) return Object.freeze(withReplay(parsed.data, records));
  const details = parsed.error.issues.map((issue) => {
    const path = issue.path.map(String).join(".");
    return `${path === "" ? "" : `${path}: `}${issue.message}`;
  });
  throw new ImgbatchError("INVALID_CONFIG", `${source}: ${details.join("; ")}`, { details });
}

/** Lets each provider that does not say how many images it makes at once make so many. Jobs of upstreams keep their number. */
function withConcurrency(value: unknown, concurrency: number): unknown {
  if (!isObject(value)) return value;
  const { providers = DEFAULT_PROVIDERS } = value;
  if (!Array.isArray(providers)) return value;
  const typed = providers.map((entry) => {
    if (!isObject(entry) || entry.concurrency !== undefined) return entry;
    const type = String(entry.type ?? findPreset(entry.preset)?.provider.type);
    return isJobType(type) ? entry : { ...entry, concurrency };
  });
  return { ...value, providers: typed };
}

/** Takes as long prompts as all models of the presets do, unless the file says how long they may be. */
function withPromptChars(value: unknown): unknown {
  if (!isObject(value) || !Array.isArray(value.providers)) return value;
  const { limits = {} } = value;
  if (!isObject(limits) || limits.promptChars !== undefined) return value;
  const chars = value.providers.flatMap((entry) => {
    const models = (isObject(entry) ? findPreset(entry.preset)?.models : undefined) ?? [{}];
    return models.map((model) => ("promptChars" in model ? (model.promptChars ?? 0) : 0));
  });
  const promptChars = Math.min(...chars);
  const isLonger = chars.length > 0 && promptChars > DEFAULT_LIMITS.promptChars;
  return isLonger ? { ...value, limits: { ...limits, promptChars } } : value;
}

/** Puts the directory of `replay` in the place of each provider. */
function withReplay({ providers, ...config }: z.infer<typeof configSchema>, records: boolean): Config {
  const { replay: directory } = config;
  if (directory === null) return { ...config, providers };
  const replays = providers.map((of): ReplayEntry => {
    const { name, rateMultiplier } = of;
    const own = providers.length === 1 ? "replay" : `replay-${name}`;
    return { type: "replay", name: own, of, directory, records, rateMultiplier };
  });
  return { ...config, providers: replays };
}

/** A configuration file that is a command's only because it is in the working directory: a stranger may have written it. */
interface FoundFile {
  path: string;
  /** Exactly what was parsed. */
  text: string;
  /** The paths of what needs the user's consent, such as `providers[0].argv`. */
  fields: readonly string[];
}

/** What a found file may say of a provider: it names what this program knows. */
const OF_PRESETS = ["preset", "name", "concurrency"];

/**
 * Returns what in a file needs consent: every field that changes a default, except a preset, the name and the concurrency of
 * a provider, and limits below their defaults. `config` is the same file, checked.
 */
function fieldsToAgree(
  { $schema: _, providers: entries, ...others }: Record<string, unknown>,
  { providers }: Config,
): string[] {
  const ofEntries = (Array.isArray(entries) ? entries : []).flatMap((entry, i) => {
    const read = providers[i];
    return fieldsOfEntry(fieldsOf(entry) ?? {}, read?.type === "replay" ? read.of : read).map(
      (field) => `providers[${i}].${field}`,
    );
  });
  return [...changedFields(others, parseConfig({}, "built-in defaults"), ""), ...ofEntries];
}

function changedFields(value: unknown, usual: unknown, path: string): string[] {
  if (value === undefined || isDeepStrictEqual(value, usual)) return [];
  if (isObject(value) && isObject(usual))
    return Object.entries(value).flatMap(([name, each]) =>
      changedFields(each, usual[name], path === "" ? name : `${path}.${name}`),
    );
  // Of some limits 0 means none.
  const isLower = typeof value === "number" && typeof usual === "number" && 0 < value && value < usual;
  return isLower && path.startsWith("limits.") ? [] : [path];
}

function fieldsOfEntry(written: Record<string, unknown>, read: ProviderEntry | undefined): string[] {
  const isDrawing = read?.type === "procedural";
  const fields = Object.keys(written).filter(
    (name) => !OF_PRESETS.includes(name) && !(isDrawing && name === "type"),
  );
  // The program of the preset is a file of the working directory.
  return read?.type === "command" && !fields.includes("argv") ? ["argv", ...fields] : fields;
}

/** Throws `CONSENT_REQUIRED` unless the user has agreed to a file with exactly this content. */
export function requireAgreed({ path, text, fields }: FoundFile): void {
  if (readAgreed()[path] === sha256Hex(text)) return;
  const message = `${path} needs your consent, since a stranger may have written it: ${fields.join(", ")}. Nothing was run, sent or connected to.`;
  const advice = `read the file; if you trust it, agree to it as it is: ${programName()} doctor --agree (for one run, and in CI: --config imgbatch.config.json)`;
  throw new ImgbatchError("CONSENT_REQUIRED", message, { details: fields, advice });
}

/** Stores the user's consent to a file with exactly this content. Throws system errors. */
export async function agreeTo({ path, text }: Pick<FoundFile, "path" | "text">): Promise<void> {
  const store = agreementsFile();
  const agreed = { ...readAgreed(), [path]: sha256Hex(text) };
  await makeDirectory(dirname(store), 0o700);
  await writeFileDurably(store, `${JSON.stringify(agreed, null, 2)}\n`, { mode: 0o600 });
}

/** The hash of the agreed content by path; none if the file is missing or damaged. */
function readAgreed(): Record<string, unknown> {
  try {
    return fieldsOf(JSON.parse(readFileSync(agreementsFile(), "utf8"))) ?? {};
  } catch {
    return {};
  }
}

/** The entries of `providers` in a configuration that is not checked yet, as they are written. */
function entriesOf(value: unknown): Record<string, unknown>[] {
  return isObject(value) && Array.isArray(value.providers) ? value.providers.filter(isObject) : [];
}

/**
 * Returns the parts of a configuration that make the named upstreams its only ones: providers of the file where it has any,
 * with all that it says about them, else presets. Throws `USAGE` for a name that the file, or this program, does not have.
 */
function ofUpstreams(value: Record<string, unknown>, source: string, names: readonly string[]) {
  const entries = entriesOf(value);
  if (entries.length > 0) {
    const providers = names.map((name) => pick(entries, name, source));
    // Models and prices of a provider without a preset are those of the whole file.
    const isOwn = providers.every(({ preset }) => preset === undefined);
    const { models, groups } = isOwn ? (withPresets(value) as typeof value) : value;
    return { models, groups, providers };
  }
  const unknown = names.find((name) => findPreset(name) === undefined);
  if (unknown === undefined) return upstreamConfig(...names);
  const right = meantUpstream(unknown);
  const advice = right === null ? "" : ` Did you mean ${right}?`;
  const message = `--upstream ${JSON.stringify(unknown)}: use ${UPSTREAM_NAMES.join(", ")}.${advice}`;
  const meant = right === null ? undefined : { typed: unknown, right };
  throw new ImgbatchError("USAGE", message, { param: "--upstream", meant });
}

/** Returns the entry with this name, else the first one of this preset, else the first one of this type. */
function pick(entries: readonly Record<string, unknown>[], name: string, source: string) {
  const found =
    entries.find((entry) => nameOf(entry) === name) ??
    entries.find(({ preset }) => preset === name) ??
    entries.find(({ type, preset }) => (type ?? findPreset(preset)?.provider.type) === name);
  if (found !== undefined) return found;
  const names = entries.flatMap((entry) => nameOf(entry) ?? []);
  const right = didYouMean(name, names);
  const there = `${source} has ${names.join(", ")}`;
  const message = `--upstream ${JSON.stringify(name)}: ${there}.${right === null ? "" : ` Did you mean ${right}?`}`;
  const ignoring = findPreset(name) === undefined ? "" : "; --config none ignores that file";
  throw new ImgbatchError("USAGE", message, {
    param: "--upstream",
    advice: `name a provider of that file, or add this one to it${ignoring}`,
    meant: right === null ? undefined : { typed: name, right },
  });
}

function nameOf({ name, preset }: Record<string, unknown>): string | null {
  const known = name ?? findPreset(preset)?.provider.name;
  return typeof known === "string" ? known : null;
}

/** Returns the parts of a configuration that make the upstreams of presets the only ones. */
export function upstreamConfig(...names: readonly string[]) {
  return { models: undefined, groups: undefined, providers: names.map((name) => ofPreset(name, names)) };
}

/** Beside another upstream, one serves its own models alone. */
function ofPreset(name: string, { length }: readonly string[]) {
  const { provider = {}, models = [] } = findPreset(name) ?? {};
  const isAlone = length === 1 || "models" in provider;
  return isAlone ? { preset: name } : { preset: name, models: models.map(({ id }) => id) };
}

/** Returns the first name in `providers` that is no preset, in words; null when all are. */
function unknownPreset(value: unknown): string | null {
  const entries = isObject(value) && Array.isArray(value.providers) ? value.providers : [];
  for (const [at, entry] of entries.entries()) {
    if (!isObject(entry) || typeof entry.preset !== "string" || findPreset(entry.preset)) continue;
    const meant = meantUpstream(entry.preset);
    const advice = meant === null ? `use ${UPSTREAM_NAMES.join(", ")}` : `did you mean ${meant}?`;
    return `providers.${at}.preset: there is no preset ${JSON.stringify(entry.preset)}: ${advice}`;
  }
  return null;
}

/**
 * Returns a configuration, not checked yet, in which each entry of `providers` with a `preset` has the settings of it. Where
 * the configuration names no models, they are those of its presets, and its groups charge what the upstreams charge. A key
 * that it has already wins. Any other value is returned unchanged.
 */
function withPresets(value: unknown, priced: PricedModel | null = null): unknown {
  if (!isObject(value) || !Array.isArray(value.providers)) return value;
  const isReal = value.providers.some((entry) => isObject(entry) && entry.type !== "procedural");
  const presets = value.providers.flatMap((entry): (Preset & { isFree: boolean })[] => {
    const found = isObject(entry) ? findPreset(entry.preset) : undefined;
    return found ? [{ ...found, isFree: isObject(entry) && entry.free === true }] : [];
  });
  if (presets.length === 0 && (priced === null || !isReal)) return value;
  if (presets.length === 0) return { ...value, models: withPrice(value.models ?? DEFAULT_MODELS, priced) };
  const known = presets.flatMap((preset) =>
    modelEntries(preset).map((model) => ({
      ...model,
      ...(preset.isFree && { prices: { "1K": 0, ...model.prices } }),
    })),
  );
  const own = known.filter(({ id }, at) => known.findIndex((each) => each.id === id) === at);
  // Vendors have a discount for jobs alone.
  const share = presets.every(({ isOfJobs }) => isOfJobs)
    ? Math.max(...own.map(({ jobPrice }) => jobPrice ?? 0))
    : 1;
  const charged = { batchDiscount: share, holdMultiplier: share };
  const { groups = [{ name: "default" }] } = value;
  return {
    ...value,
    models: withPrice(value.models === undefined ? own : value.models, priced),
    groups: Array.isArray(groups)
      ? groups.map((group) => (isObject(group) ? { ...charged, ...group } : group))
      : groups,
    providers: value.providers.map((entry) => {
      const preset = isObject(entry) ? findPreset(entry.preset) : undefined;
      return preset ? servingToo({ ...preset.provider, ...entry }, priced) : entry;
    }),
  };
}

/** Gives a model its price, unless it has one. A model that is missing is added. */
function withPrice(models: unknown, priced: PricedModel | null): unknown {
  if (priced === null || !Array.isArray(models)) return models;
  const id = priced.id ?? (models[0] as { id?: unknown } | undefined)?.id;
  const prices = { "1K": priced.usd };
  if (!models.some((model) => isObject(model) && model.id === id)) return [...models, { id, prices }];
  return models.map((model) => {
    const known = isObject(model) && isObject(model.prices) ? model.prices : {};
    if (!isObject(model) || model.id !== id || "1K" in known) return model;
    // The price is the same for every quality.
    return { ...model, prices: { ...known, ...prices }, qualityPrices: undefined };
  });
}

/** An entry whose upstream has other ids serves only those. A new model has the id that the upstream knows. */
function servingToo(entry: Record<string, unknown>, priced: PricedModel | null) {
  const { models } = entry;
  if (!isObject(models) || !priced?.id || priced.id in models) return entry;
  return { ...entry, models: { ...models, [priced.id]: priced.id } };
}

/**
 * Returns a configuration, not checked yet, with the settings of its `vendor.preset`. A key that it has already wins.
 * Any other value is returned unchanged.
 */
function withVendorPreset(value: unknown): unknown {
  if (!isObject(value) || !isObject(value.vendor)) return value;
  const name = VENDOR_NAMES.find((each) => isObject(value.vendor) && each === value.vendor.preset);
  const preset = findPreset(name);
  if (preset === undefined) return value;
  const { keyHeader } = preset.provider;
  const filled = (given: unknown, settings: object) =>
    given === undefined ? settings : isObject(given) ? { ...settings, ...given } : given;
  return {
    ...value,
    models: value.models === undefined ? modelEntries(preset) : value.models,
    features: filled(value.features, { strictImageConfig: false }),
    vendor: filled(value.vendor, { keyHeaders: keyHeader === undefined ? [] : [keyHeader] }),
  };
}
