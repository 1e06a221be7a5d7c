import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type ParseError, parse as parseJsonc, printParseErrorCode } from "jsonc-parser";
import { ImgbatchError } from "../contract/errors.ts";
import { inWords } from "../contract/text-rules.ts";
import { type FoundFile, fieldsToAgree, requireAgreed } from "./consent.ts";
import { CONFIG_FILE, type ConfigChoice } from "./paths.ts";
import { isObject, upstreamConfig, withVendorPreset } from "./presets.ts";
import { type Config, configSchema } from "./schema.ts";

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
  const { upstream = null, vendor = null, file, replaced = [] } = choice;
  const { value, text, source } = readConfigFile(choice);
  if (!isObject(value)) return { config: parseConfig(value, source), found: null };
  const { vendor: ofFile = {} } = value;
  const chosen = {
    ...(upstream === null ? {} : upstreamConfig(upstream)),
    ...(vendor === null || !isObject(ofFile) ? {} : { vendor: { ...ofFile, preset: vendor } }),
  };
  const config = parseConfig({ ...value, ...chosen }, source);
  if (file !== undefined || text === null) return { config, found: null };
  const named = fieldsToAgree(upstream === null ? config : { ...config, providers: [] });
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
export function parseConfig(value: unknown, source: string): Config {
  const parsed = configSchema.safeParse(withVendorPreset(value), { error: inWords });
  if (parsed.success) return Object.freeze(parsed.data);
  const details = parsed.error.issues.map((issue) => {
    const path = issue.path.map(String).join(".");
    return `${path === "" ? "" : `${path}: `}${issue.message}`;
  });
  throw new ImgbatchError("INVALID_CONFIG", `${source}: ${details.join("; ")}`, { details });
}
