import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import envPaths from "env-paths";
import { type ParseError, parse as parseJsonc, printParseErrorCode } from "jsonc-parser";
import { ImgbatchError } from "../contract/errors.ts";
import { inWords } from "../contract/schema-words.ts";
import type { Environment } from "../environment.ts";
import { type Config, configSchema } from "./schema.ts";

const CONFIG_FILE = "imgbatch.config.json";

/**
 * Reads the configuration: the named file, else `imgbatch.config.json` of the working directory, else defaults.
 * Comments are allowed. Throws `INVALID_CONFIG`, naming the file and every key that is unknown or of a wrong type.
 */
export function loadConfig(options: { file?: string | undefined; cwd: string }): Config {
  const path = resolve(options.cwd, options.file ?? CONFIG_FILE);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
    if (isMissing && options.file === undefined) return parseConfig({}, "built-in defaults");
    throw new ImgbatchError("INVALID_CONFIG", `${path}: cannot be read`, { cause: error });
  }
  const errors: ParseError[] = [];
  const value: unknown = parseJsonc(text, errors, { allowTrailingComma: true });
  const first = errors[0];
  if (first) {
    const line = text.slice(0, first.offset).split("\n").length;
    throw new ImgbatchError("INVALID_CONFIG", `${path}:${line}: ${words(printParseErrorCode(first.error))}`);
  }
  return parseConfig(value, path);
}

/** `ValueExpected` as people write it. */
const words = (name: string) => name.replaceAll(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();

/** Checks a configuration value and fills in the defaults. `source` names it in errors. */
export function parseConfig(value: unknown, source: string): Config {
  const parsed = configSchema.safeParse(value, { error: inWords });
  if (parsed.success) return Object.freeze(parsed.data);
  const details = parsed.error.issues.map((issue) => {
    const path = issue.path.map(String).join(".");
    return `${path === "" ? "" : `${path}: `}${issue.message}`;
  });
  throw new ImgbatchError("INVALID_CONFIG", `${source}: ${details.join("; ")}`, { details });
}

/**
 * Whether nothing but drawings is made: then the money is play money. Without any provider nothing is made.
 */
export function isProceduralOnly({ providers }: Pick<Config, "providers">): boolean {
  return providers.length > 0 && providers.every((provider) => provider.type === "procedural");
}

/** The data directory: the flag, else the environment, else the user's own on this platform. */
export function dataDirectoryOf(flag: string | undefined, environment: Environment, cwd: string): string {
  const named = flag ?? environment.dataDirectory;
  return named === undefined ? join(envPaths("imgbatch", { suffix: "" }).data) : resolve(cwd, named);
}

/** The file with the addresses that this user has agreed to, in the configuration directory of this platform. */
export function agreementsFile(): string {
  return join(envPaths("imgbatch", { suffix: "" }).config, "agreed-addresses.json");
}
