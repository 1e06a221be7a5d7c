import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import envPaths from "env-paths";
import { type ParseError, parse as parseJsonc, printParseErrorCode } from "jsonc-parser";
import { ImgbatchError } from "../contract/errors.ts";
import { inWords } from "../contract/schema-words.ts";
import type { Environment } from "../environment.ts";
import { isObject, type UpstreamName, upstreamConfig, withVendorPreset } from "./presets.ts";
import { type Config, configSchema } from "./schema.ts";
import type { VendorName } from "./vendors.ts";

const CONFIG_FILE = "imgbatch.config.json";

/** The configuration that a command line asks for. */
export interface ConfigChoice {
  /** Default: `imgbatch.config.json` in the working directory, which may be missing. */
  file?: string | undefined;
  cwd: string;
  /** An upstream that takes the place of the file's models, groups and providers. */
  upstream?: UpstreamName | null;
  /** The vendor whose client libraries are served, as `vendor.preset`. */
  vendor?: VendorName | null;
}

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

/** Whether every provider only draws, so that the money is play money. False without any provider. */
export function isProceduralOnly({ providers }: Pick<Config, "providers">): boolean {
  return providers.length > 0 && providers.every((provider) => provider.type === "procedural");
}

/** Returns the data directory: from the flag, else from the environment, else the user's default on this platform. */
export function dataDirectoryOf(flag: string | undefined, environment: Environment, cwd: string): string {
  const named = flag ?? environment.dataDirectory;
  return named === undefined ? join(envPaths("imgbatch", { suffix: "" }).data) : resolve(cwd, named);
}

/** Returns the path of the file with the addresses that this user has agreed to. */
export function agreementsFile(): string {
  return join(envPaths("imgbatch", { suffix: "" }).config, "agreed-addresses.json");
}
