import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type ParseError, parse as parseJsonc, printParseErrorCode } from "jsonc-parser";
import { ImgbatchError } from "../contract/errors.ts";
import { inWords } from "../contract/schema-words.ts";
import { CONFIG_FILE, type ConfigChoice } from "./paths.ts";
import { isObject, upstreamConfig, withVendorPreset } from "./presets.ts";
import { type Config, configSchema } from "./schema.ts";

/**
 * Reads the configuration from its file. Without a file it returns the defaults. Comments are allowed. Throws
 * `INVALID_CONFIG`, naming the file and every unknown key or wrong value.
 */
export function loadConfig({ upstream = null, vendor = null, ...where }: ConfigChoice): Config {
  const { value, source } = readConfigFile(where);
  if (!isObject(value)) return parseConfig(value, source);
  const { vendor: ofFile = {} } = value;
  const chosen = {
    ...(upstream === null ? {} : upstreamConfig(upstream)),
    ...(vendor === null || !isObject(ofFile) ? {} : { vendor: { ...ofFile, preset: vendor } }),
  };
  return parseConfig({ ...value, ...chosen }, source);
}

function readConfigFile(options: Pick<ConfigChoice, "file" | "cwd">): { value: unknown; source: string } {
  const path = resolve(options.cwd, options.file ?? CONFIG_FILE);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
    if (isMissing && options.file === undefined) return { value: {}, source: "built-in defaults" };
    throw new ImgbatchError("INVALID_CONFIG", `${path}: cannot be read`, { cause: error });
  }
  const errors: ParseError[] = [];
  const value: unknown = parseJsonc(text, errors, { allowTrailingComma: true });
  const first = errors[0];
  if (first) {
    const line = text.slice(0, first.offset).split("\n").length;
    throw new ImgbatchError("INVALID_CONFIG", `${path}:${line}: ${words(printParseErrorCode(first.error))}`);
  }
  return { value, source: path };
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
