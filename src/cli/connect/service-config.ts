import { lstat, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { loadConfig, parseConfig } from "../../config/load.ts";
import type { ConfigChoice } from "../../config/paths.ts";
import type { Role } from "../../config/roles.ts";
import type { Config } from "../../config/schema.ts";
import { type StoragePlaces, storagePlaces } from "../../config/storage-places.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readEnvironment, readStorageEnvironment } from "../../environment.ts";
import { programName } from "../../kernel/command-line.ts";
import { parseDuration } from "../../kernel/durations.ts";
import { isJobType } from "../../providers/catalogue/catalogue.ts";
import { isDataDirectoryInUse } from "../../service/native-modules.ts";
import type { CommandContext } from "../command.ts";
import { requireKeys, requireSendableKeys } from "./embedded.ts";

/**
 * Returns the configuration of a service that a command runs for others: its file with `--upstream`, `--vendor` and
 * `--simulate` over it. Throws `USAGE` (also for `--record` without a directory, or with upstreams whose jobs make the images), the errors of `loadConfig`, and `API_KEY_REQUIRED` without the keys of the
 * upstreams. `records`: see `ConfigChoice`. `mayLackKeys`: a service whose providers stand in a file starts without their keys, and says so.
 */
export function serviceConfig(
  context: Pick<CommandContext, "cwd" | "global" | "options">,
  { mayLackKeys, records = false }: { mayLackKeys: boolean; records?: boolean },
): Config {
  const choice = configChoice(context);
  const config = withSimulation(loadConfig({ ...choice, records }), context.options.simulate);
  if (records) requireRecordable(config);
  if (choice.upstream !== null || !mayLackKeys) requireKeys(config);
  else requireSendableKeys(config, mayLackKeys);
  return config;
}

/**
 * Throws `USAGE` when there is no directory to record to, and for upstreams that work in jobs: their images come hours later,
 * many at once.
 */
function requireRecordable({ replay, providers }: Config): void {
  if (replay === null) {
    const advice = `${programName()} exec --replay DIR --record -- COMMAND`;
    throw new ImgbatchError("USAGE", "--record needs a directory to keep the images in.", { advice });
  }
  const entries = providers.map((entry) => (entry.type === "replay" ? entry.of : entry));
  const jobs = entries.find(({ type }) => isJobType(type));
  if (jobs === undefined) return;
  const message = `${jobs.name} makes images as batch jobs of the upstream, which cannot be recorded. Nothing was sent.`;
  const advice =
    "record with the upstream that makes them one by one, such as --upstream google; replay with either";
  throw new ImgbatchError("USAGE", message, { param: "--record", advice });
}

/** Applies a text such as `latency=2s,fail=0.1,seed=7` over the configuration. Throws `USAGE` for any other form. */
function withSimulation(config: Config, spec: string | undefined): Config {
  if (spec === undefined) return config;
  const simulate: Record<string, number> = { ...config.simulate };
  for (const pair of spec.split(",")) {
    const [name = "", value = ""] = pair.split("=", 2);
    if (name === "latency") simulate.latencyMs = readLatency(value);
    else if (name === "fail" || name === "seed") simulate[name] = value === "" ? Number.NaN : Number(value);
    else throw usage(`--simulate: ${JSON.stringify(name)}: use latency, fail or seed`);
  }
  try {
    return { ...config, simulate: parseConfig({ simulate }, "--simulate").simulate };
  } catch (error) {
    throw usage(error instanceof Error ? error.message : "--simulate is invalid");
  }
}

function readLatency(value: string): number {
  const ms = parseDuration(value);
  if (ms !== null) return ms;
  throw usage(`--simulate: latency ${JSON.stringify(value)}: write a time such as 500ms or 2s`);
}

function usage(message: string): ImgbatchError {
  return new ImgbatchError("USAGE", message, { param: "--simulate" });
}

/**
 * Returns where the data of a service is, by the options `storageOptions`, the environment and the configuration. Throws
 * `INVALID_CONFIG` for a place that cannot be used.
 */
export function storageOf(
  { options }: Pick<CommandContext, "options">,
  config: Pick<Config, "storage"> | null,
): StoragePlaces {
  const { database, blobs, s3Endpoint, s3Region } = options;
  const flags = { database, blobs, s3Endpoint, s3Region };
  return storagePlaces(config?.storage, flags, readStorageEnvironment());
}

/**
 * Throws `INVALID_CONFIG` for a service whose data others could not use: a role that shares its work needs a database and
 * a bucket, and a database on another machine needs a bucket, too.
 */
export function requireShared(role: Role, { database, blobs }: StoragePlaces): void {
  const isShared = database.kind === "postgres";
  if (blobs.kind === "s3" ? role === "all" || isShared : role === "all" && !isShared) return;
  const missing = [
    ...(isShared ? [] : ["--database postgres://host/database"]),
    ...(blobs.kind === "s3" ? [] : ["--blobs s3://bucket/prefix"]),
  ];
  const message =
    role === "all"
      ? "Images in files are seen by one machine alone, and the database is for many."
      : `--role ${role} shares its work with other processes, and the data directory belongs to one.`;
  throw new ImgbatchError("INVALID_CONFIG", message, { advice: `add ${missing.join(" ")}` });
}

/** Returns the configuration that a command line asks for. */
export function configChoice({
  global,
  options,
  cwd,
}: Pick<CommandContext, "global" | "options" | "cwd">): ConfigChoice {
  const { replay, upstream = null, vendor = null } = options;
  const typed = {
    baseUrl: global.baseUrl ?? readEnvironment().baseUrl,
    "storage.database": options.database ?? readStorageEnvironment().databaseUrl,
    "storage.blobs": options.blobs,
    replay,
    "storage.s3.endpoint": options.s3Endpoint,
    "storage.s3.region": options.s3Region,
    "server.host": options.host,
    "server.port": options.port,
    "vendor.preset": options.vendor,
  };
  return {
    file: global.config,
    cwd,
    upstream,
    vendor,
    ...(replay === undefined ? {} : { replay }),
    replaced: Object.entries(typed).flatMap(([field, value]) => (value === undefined ? [] : [field])),
  };
}

/** The names of ephemeral directories. */
const NAME = /^imgbatch-(exec|serve)-\w{6}$/;
/** A younger directory may belong to a command that has not locked it yet. */
const MIN_AGE_MS = 60_000;

/**
 * Creates a data directory for the time of one command. First removes the directories that killed commands have left.
 * `nowMs` is the time in ms since 1970.
 */
export async function makeEphemeralDirectory(command: "exec" | "serve", nowMs: number): Promise<string> {
  await removeAbandoned(tmpdir(), nowMs).catch(() => {});
  return mkdtemp(join(tmpdir(), `imgbatch-${command}-`));
}

async function removeAbandoned(parent: string, nowMs: number): Promise<void> {
  for (const name of await readdir(parent)) {
    if (!NAME.test(name)) continue;
    const path = join(parent, name);
    // The next start tries again.
    await isAbandoned(path, nowMs)
      .then((isIt) => (isIt ? rm(path, { recursive: true, force: true }) : undefined))
      .catch(() => {});
  }
}

/** False for links and for directories of other users, because everyone can write to the temporary folder. */
async function isAbandoned(path: string, nowMs: number): Promise<boolean> {
  const stats = await lstat(path);
  const { uid } = userInfo();
  if (!stats.isDirectory() || (uid >= 0 && stats.uid !== uid)) return false;
  return nowMs - stats.mtimeMs > MIN_AGE_MS && !(await isDataDirectoryInUse(path));
}
