import { join, resolve } from "node:path";
import envPaths from "env-paths";
import type { Environment } from "../environment.ts";

/** The vendors whose own client libraries can be served without further settings. */
export const VENDOR_NAMES = ["google", "openai"] as const;

export const CONFIG_FILE = "imgbatch.config.json";
/** In place of a file: no configuration, also where the working directory has one. */
export const NO_CONFIG_FILE = "none";

/** A model without a price in the catalogue, and its price in US dollars from the command line. */
export interface PricedModel {
  /** Null: the default of the preset. */
  id: string | null;
  usd: number;
}

/** The configuration that a command line asks for. */
export interface ConfigChoice {
  /** Default: `imgbatch.config.json` in the working directory, which may be missing. `none`: no file. */
  file?: string | undefined;
  cwd: string;
  /**
   * The only provider to use: one of the file by its name, else by its preset or type. A file without providers has each
   * preset. Null: all providers of the file.
   */
  upstream?: string | null;
  /** More of them, which are used behind that one. Default: none. */
  besides?: readonly string[];
  /** A model that has no price in the catalogue, with one. */
  priced?: PricedModel | null;
  /**
   * How many images a provider makes at once whose entry in the file does not say it. Providers that make batch jobs keep
   * their own number. Default: that of the preset, else of the type.
   */
  concurrency?: number | undefined;
  /** The vendor whose client libraries are served, as `vendor.preset`. */
  vendor?: (typeof VENDOR_NAMES)[number] | null;
  /** The directory of `replay`, in place of the file's. Null: none. */
  replay?: string | null;
  /** Whether what it lacks is asked of the upstreams and kept. */
  records?: boolean;
  /** The fields that a flag or the environment replaces, such as `storage.database`: they are not used, and need no consent. */
  replaced?: readonly string[] | "all";
}

/** Returns the data directory: from the flag, else from the environment, else the user's default on this platform. */
export function dataDirectoryOf(flag: string | undefined, environment: Environment, cwd: string): string {
  const named = flag ?? environment.dataDirectory;
  return named === undefined ? join(envPaths("imgbatch", { suffix: "" }).data) : resolve(cwd, named);
}

/** Returns the directory of this user for what can be read again at any time. */
export function cacheDirectory(): string {
  return envPaths("imgbatch", { suffix: "" }).cache;
}

/** Returns the path of the file with the configurations that this user has agreed to. */
export function agreementsFile(): string {
  return join(envPaths("imgbatch", { suffix: "" }).config, "agreed-configurations.json");
}
