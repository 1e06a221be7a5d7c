import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { type ParseError, parse as parseJsonc, printParseErrorCode } from "jsonc-parser";
import type { z } from "zod";
import { secretVariables } from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { inWords } from "../contract/limits.ts";
import type { ProviderEntry, ReplayEntry } from "../contract/provider-entries.ts";
import { programName } from "../kernel/command-line.ts";
import { makeDirectory, writeFileDurably } from "../kernel/files.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { fieldsOf } from "../kernel/json.ts";
import { presetOf } from "../providers/catalogue/catalogue.ts";
import { agreementsFile, CONFIG_FILE, type ConfigChoice } from "./paths.ts";
import { type Config, configSchema } from "./schema.ts";
import { isObject, unknownPreset, upstreamConfig, withPresets, withVendorPreset } from "./with-presets.ts";

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
    ...(upstream === null ? {} : upstreamConfig(upstream, ...besides)),
    ...(vendor === null || !isObject(ofFile) ? {} : { vendor: { ...ofFile, preset: vendor } }),
  };
  const config = parseConfig({ ...value, ...chosen }, source, choice);
  if (file !== undefined || text === null) return { config, found: null };
  const named = [
    ...fieldsToAgree(upstream === null ? config : { ...config, providers: [] }),
    // Recording writes there.
    ...(choice.records === true && config.replay !== null ? ["replay"] : []),
  ];
  const fields = replaced === "all" ? [] : named.filter((field) => !replaced.includes(field));
  return { config, found: fields.length === 0 ? null : { path: source, text, fields } };
}

function readConfigFile({ file, cwd }: ConfigChoice): {
  value: unknown;
  text: string | null;
  source: string;
} {
  const path = resolve(cwd, file ?? CONFIG_FILE);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
    if (isMissing && file === undefined) return { value: {}, text: null, source: "built-in defaults" };
    throw new ImgbatchError("INVALID_CONFIG", `${path}: cannot be read`, { cause: error });
  }
  const errors: ParseError[] = [];
  const value: unknown = parseJsonc(text, errors, { allowTrailingComma: true });
  const first = errors[0];
  if (first) {
    const line = text.slice(0, first.offset).split("\n").length;
    throw new ImgbatchError("INVALID_CONFIG", `${path}:${line}: ${words(printParseErrorCode(first.error))}`);
  }
  return { value, text, source: path };
}

/** `ValueExpected` as plain words. */
const words = (name: string) => name.replaceAll(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();

/** Checks a configuration value and fills in the defaults. `source` names it in errors. */
export function parseConfig(
  value: unknown,
  source: string,
  { priced = null, records = false }: Pick<ConfigChoice, "priced" | "records"> = {},
): Config {
  const unknown = unknownPreset(value);
  if (unknown !== null) throw new ImgbatchError("INVALID_CONFIG", `${source}: ${unknown}`);
  const filled = withVendorPreset(withPresets(value, priced));
  const parsed = configSchema.safeParse(filled, { error: inWords });
  if (parsed.success) return Object.freeze(withReplay(parsed.data, records));
  const details = parsed.error.issues.map((issue) => {
    const path = issue.path.map(String).join(".");
    return `${path === "" ? "" : `${path}: `}${issue.message}`;
  });
  throw new ImgbatchError("INVALID_CONFIG", `${source}: ${details.join("; ")}`, { details });
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

/**
 * Returns what in a configuration needs consent: addresses, programs, names of secret variables, databases and buckets,
 * except the address of a preset with the variable of that preset. `free` does where the preset costs money, since it
 * spares the question for the price.
 */
function fieldsToAgree({ baseUrl, storage, providers }: Config): string[] {
  return [
    ...(baseUrl === null ? [] : ["baseUrl"]),
    ...(storage.database === "sqlite" ? [] : ["storage.database"]),
    ...(storage.blobs === "files" ? [] : ["storage.blobs"]),
    ...(storage.s3.endpoint === null ? [] : ["storage.s3.endpoint"]),
    ...providers.flatMap((entry, i) => fieldsOfEntry(entry).map((field) => `providers[${i}].${field}`)),
  ];
}

function fieldsOfEntry(entry: ProviderEntry): string[] {
  if (entry.type === "procedural") return [];
  if (entry.type === "replay") return entry.records ? fieldsOfEntry(entry.of) : [];
  const names = secretVariables(entry);
  if (entry.type === "command") return names.length === 0 ? ["argv"] : ["argv", "env"];
  const preset = presetOf(entry);
  const isAt = preset !== undefined && preset.provider.baseUrl === entry.baseUrl;
  const isOwnVariable = names.every((name) => isAt && name === preset.keyVariable);
  const secrets = Object.entries(entry).filter(([key, value]) => key.endsWith("Env") && value !== null);
  // The key is sent there, too.
  const hasOrigins =
    entry.type === "task" && entry.origins.some((each) => !preset?.provider.origins?.includes(each));
  return [
    ...(isAt ? [] : ["baseUrl"]),
    ...(hasOrigins ? ["origins"] : []),
    ...(isOwnVariable ? [] : secrets.map(([key]) => key)),
    ...(isAt && preset.keyVariable && entry.free ? ["free"] : []),
  ];
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
