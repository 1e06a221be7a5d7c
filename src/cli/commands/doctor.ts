import { readFileSync } from "node:fs";
import { access, constants, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { listProviders, resumeProvider } from "../../client/providers.ts";
import { agreeTo, readConfig, requireAgreed } from "../../config/load.ts";
import { agreementsFile, dataDirectoryOf } from "../../config/paths.ts";
import { type Config, undercharging } from "../../config/schema.ts";
import type { StoragePlaces } from "../../config/storage-places.ts";
import { DATA_FILES, identityOf, secretVariables } from "../../contract/data-directory.ts";
import { EXIT_CODES, type ExitName, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { ProviderEntry } from "../../contract/provider-entries.ts";
import { routes } from "../../contract/routes.ts";
import { named, unnamed } from "../../contract/waiting.ts";
import { readEnvironment } from "../../environment.ts";
import { send } from "../../http/transport.ts";
import { programName } from "../../kernel/command-line.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { nearestExisting } from "../../kernel/files.ts";
import { packageFile } from "../../kernel/package-file.ts";
import { counted } from "../../kernel/text.ts";
import {
  isDataDirectoryInUse,
  loadNativeModule,
  NATIVE_MODULES,
  type NativeModule,
} from "../../service/native-modules.ts";
import type {
  Probe,
  ProviderReport,
  ProviderStatus,
  ProviderTrouble,
  RunningProviders,
  Trouble,
} from "../../service/provider-status.ts";
import type { OpenStorage } from "../../service/storage/open-storage.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { httpTo, upstreamElsewhere } from "../connect/connect.ts";
import type { ReachableService } from "../connect/connection.ts";
import { providersInWords } from "../connect/embedded.ts";
import { findRunning } from "../connect/running-service.ts";
import { configChoice, storageOf } from "../connect/service-config.ts";
import { modelTroubles } from "../model-check.ts";
import * as option from "../options.ts";
import { moduleAdvice } from "../output/finish.ts";
import { nextCommand, type Whereabouts } from "../output/next-step.ts";
import { problemsOf } from "./ready.ts";
import { storageOptions, upstreamOption } from "./shared-options.ts";

/** The result of one check. */
interface Finding {
  check: string;
  /** `warn` may cause trouble later; `fail` prevents runs now. */
  state: "ok" | "warn" | "fail";
  message: string;
  /** The step that solves it; null if none is needed. */
  advice: string | null;
  /** The exit of a command that meets this problem; null unless it is a failure. */
  exit: ExitName | null;
}

function ok(check: string, message: string): Finding {
  return { check, state: "ok", message, advice: null, exit: null };
}

function warn(check: string, message: string, advice: string): Finding {
  return { check, state: "warn", message, advice, exit: null };
}

/** The failure that an error of the catalogue means. Throws any other error. */
function failure(check: string, error: unknown, usualAdvice: string): Finding {
  if (!(error instanceof ImgbatchError)) throw error;
  return fail(check, errorEntry(error.code).exit, error.message, error.advice ?? usualAdvice);
}

function fail(check: string, exit: ExitName, message: string, advice: string): Finding {
  return { check, state: "fail", message, advice, exit };
}

/** The exits in the order in which their problems must be solved. */
const WORST_FIRST: readonly ExitName[] = [
  "internal",
  "usage",
  "auth",
  "money",
  "conflict",
  "saving",
  "temporary",
];

/** The exit code of the worst finding; 0 if no check failed. */
export function worstExitCode(findings: readonly Pick<Finding, "exit">[]): number {
  const exits = new Set(findings.map(({ exit }) => exit));
  return EXIT_CODES[WORST_FIRST.find((exit) => exits.has(exit)) ?? "ok"].code;
}

/** Returns the exit of a command that meets this trouble of an upstream: all but keys, permissions and money may pass. */
export function exitOfTrouble(trouble: Trouble | null): ExitName {
  if (trouble === "credential" || trouble === "forbidden") return "auth";
  return trouble === "billing" ? "money" : "temporary";
}

const MIB = 1024 * 1024;
/** The service is not ready with less free space. */
const NEEDED_BYTES = 100 * MIB;
/** The approximate size of a full batch of large images. */
const COMFORTABLE_BYTES = 2048 * MIB;

/** The advice for choosing another directory, by check. */
const OTHER: Record<string, string> = {
  output: "run imgbatch in another directory, or name one with --output",
  data: "name another directory with --data or IMGBATCH_DATA",
};

/** Returns the bytes that this user can still write on the disk of `path`. */
type FreeBytes = (path: string) => Promise<number>;

const freeBytesOf: FreeBytes = async (path) => {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
};

/**
 * Checks whether files can be created in a directory, which need not exist yet, and whether there is enough free space.
 */
export async function checkDirectory(
  check: string,
  directory: string,
  freeBytes: FreeBytes = freeBytesOf,
): Promise<Finding[]> {
  const place = await nearestExisting(directory);
  const other = OTHER[check] ?? "choose another directory";
  try {
    if (!(await stat(place)).isDirectory())
      return [fail(check, "saving", `cannot write into ${place}: it is a file`, other)];
    await access(place, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === "EROFS" ? "read-only file system" : "no permission";
    const advice = `give this user the right to write there, or ${other}`;
    return [fail(check, "saving", `cannot write into ${place}: ${reason}`, advice)];
  }
  const free = await freeBytes(place);
  const shown = `${Math.floor(free / MIB)} MiB free`;
  const advice = `free some disk space, or ${other}`;
  if (free < NEEDED_BYTES) return [fail(check, "saving", `${place}: only ${shown}`, advice)];
  if (free < COMFORTABLE_BYTES) return [warn(check, `${place}: ${shown}`, advice)];
  const isNew = place === directory ? "" : " (created when needed)";
  return [ok(check, `${directory}${isNew}, ${shown}`)];
}

/** Checks whether other users can read the key of the embedded service, or write to its directory. */
export async function checkSecrecy(dataDirectory: string): Promise<Finding[]> {
  if (process.platform === "win32") return [];
  const path = join(dataDirectory, DATA_FILES.credentials);
  const modeOf = (place: string) =>
    stat(place)
      .then(({ mode }) => mode)
      .catch(() => 0);
  const findings: Finding[] = [];
  if (((await modeOf(path)) & 0o077) !== 0)
    findings.push(warn("credentials", `${path} can be read by others`, `chmod 600 ${path}`));
  if (((await modeOf(dataDirectory)) & 0o022) !== 0) {
    const message = `others can write into ${dataDirectory}, and could put their own data or service there`;
    findings.push(warn("data", message, `chmod go-w ${dataDirectory}`));
  }
  return findings;
}

/** Checks whether a process owns the data directory but does not answer: then commands would fail. */
export async function checkOwner(dataDirectory: string, isAnswering: boolean): Promise<Finding[]> {
  if (isAnswering) return [];
  try {
    if (!(await isDataDirectoryInUse(dataDirectory))) return [];
  } catch {
    // Another check reports why the lock cannot be read.
    return [];
  }
  const message = `another process uses ${dataDirectory} and does not answer`;
  return [
    fail("data in use", "conflict", message, "wait until it has ended, or end it; or use another --data"),
  ];
}

const TIMEOUT_MS = 5000;
/** A larger difference may break signatures and certificates. */
const MAX_SKEW_MS = 30_000;

/**
 * Checks whether the service responds, is ready, accepts the key, and has the same time. Makes no image, costs nothing.
 */
export async function checkService(
  service: ReachableService,
  context: Pick<CommandContext, "output" | "clock" | "signal">,
): Promise<Finding[]> {
  const { baseUrl } = service;
  const { signal } = context;
  const clock = await checkClock(baseUrl, context);
  if (clock === null) {
    const advice = "check the address, the network, a proxy and whether the service runs";
    return [fail("service", "temporary", `${baseUrl} does not answer`, advice)];
  }
  try {
    const problems = await problemsOf(service, context, signal);
    if (problems.length === 0)
      return [ok("service", `${baseUrl} is ready`), ok("key", "is accepted"), ...clock];
    const message = `${baseUrl} is not ready: ${problems.join("; ")}`;
    return [fail("service", "temporary", message, "wait, or ask the operator"), ...clock];
  } catch (error) {
    return [...fromError(error, baseUrl), ...clock];
  }
}

function fromError(error: unknown, baseUrl: string): Finding[] {
  if (!(error instanceof ImgbatchError)) throw error;
  const { exit } = errorEntry(error.code);
  if (exit !== "auth") {
    const message = `${baseUrl} answers, but not like an image service: ${error.message}`;
    return [fail("service", "temporary", message, error.advice ?? "check the address")];
  }
  const advice = "check IMGBATCH_API_KEY (or --api-key-file), and that the key belongs to this service";
  return [ok("service", `${baseUrl} answers`), fail("key", "auth", error.message, advice)];
}

/** Compares the clocks. Null if the service does not respond. */
async function checkClock(
  baseUrl: string,
  { clock, signal }: Pick<CommandContext, "clock" | "signal">,
): Promise<Finding[] | null> {
  const before = clock.nowMs();
  try {
    const answer = await send(baseUrl + routes.health, { signal, silenceMs: TIMEOUT_MS });
    answer.cancel();
    const theirs = Date.parse(answer.headers.get("date") ?? "");
    if (Number.isNaN(theirs)) return [];
    const skewMs = (before + clock.nowMs()) / 2 - theirs;
    if (Math.abs(skewMs) <= MAX_SKEW_MS) return [ok("clock", "agrees with the service's")];
    const direction = skewMs > 0 ? "ahead of" : "behind";
    const message = `this clock is ${formatDuration(Math.abs(skewMs))} ${direction} the service's`;
    return [warn("clock", message, "set this machine's clock, by NTP for instance")];
  } catch {
    signal.throwIfAborted();
    return null;
  }
}

/**
 * Checks a shared database, the processes that are at work on it, and a bucket. The parts in the data directory have
 * checks of their own.
 */
export async function checkStorage(storage: StoragePlaces, directory: string): Promise<Finding[]> {
  const { database, blobs } = storage;
  if (database.kind === "sqlite" && blobs.kind === "files") return [];
  // It needs the database library, which may not load on this system.
  const { openStorage } = await import("../../service/storage/open-storage.ts");
  let open: OpenStorage;
  try {
    open = await openStorage(storage, { directory });
  } catch (error) {
    return [failure("database", error, "check storage of the configuration")];
  }
  try {
    return [
      ...(database.kind === "postgres" ? await checkDatabase(open, database.name) : []),
      ...(blobs.kind === "s3" ? [await checkBucket(open, blobs.name)] : []),
    ];
  } finally {
    await open.close();
  }
}

async function checkDatabase({ stores, warnings }: OpenStorage, name: string): Promise<Finding[]> {
  try {
    await stores.write((tx) => tx.touch());
  } catch (error) {
    const message = `${name} cannot be written: ${reasonOf(error)}`;
    return [fail("database", "saving", message, "check the disk and the settings of the database")];
  }
  const roles = (await stores.read.workers.list()).map(({ role }) => role);
  const takers = roles.filter((role) => role !== "worker").length;
  const makers = roles.filter((role) => role !== "api").length;
  const found = `processes: ${takers} take requests, ${makers} make images`;
  const processes =
    takers > 0 && makers > 0
      ? ok("processes", found)
      : warn(
          "processes",
          found,
          `start \`${programName()} serve --role api\` and \`${programName()} serve --role worker\``,
        );
  const doubts = warnings.map(({ message, advice }) => warn("database", message, advice));
  return [ok("database", `${name} can be written`), ...doubts, processes];
}

async function checkBucket(open: OpenStorage, name: string): Promise<Finding> {
  try {
    await open.refuseForeignBucket();
    return ok("bucket", `${name} answers`);
  } catch (error) {
    return failure("bucket", error, "check storage of the configuration");
  }
}

/** The reason for the operator, which is in the cause where the message is for callers. */
function reasonOf(error: unknown): string {
  const { cause, message } = error as Error;
  return cause instanceof Error ? cause.message : message;
}

/** The model of a trouble that concerns every model. */
const EVERY_MODEL = "*";

/**
 * Asks the service that runs on a data directory for its providers. Returns null when none runs, and when it has other
 * providers than the configuration: then `onOther` is called with them in words.
 */
export async function findRunningProviders(
  { providers }: Pick<Config, "providers">,
  directory: string,
  context: Pick<CommandContext, "output" | "clock" | "signal">,
  onOther: (theirs: string) => void = () => {},
): Promise<RunningProviders | null> {
  const running = await findRunning(directory).catch(() => null);
  if (running === null || running.providers.length === 0) return null;
  const theirs = providersInWords(running.providers);
  if (theirs !== providersInWords(providers.map(identityOf))) {
    onOther(theirs);
    return null;
  }
  const http = httpTo(running, context);
  const troubles = (await listProviders(http, context.signal)).flatMap(troublesIn);
  const resume = (name: string) => resumeProvider(http, name, context.signal);
  return { identities: running.providers, troubles, resume };
}

type ProviderObject = Awaited<ReturnType<typeof listProviders>>[number];

function troublesIn({ name, models, ...ofAll }: ProviderObject): ProviderTrouble[] {
  return [{ ...ofAll, model: EVERY_MODEL }, ...models].flatMap(
    ({ model, state, until, reason, said, failed_requests: failures }) =>
      reason === null
        ? []
        : {
            provider: name,
            model,
            message: reason,
            said,
            failures,
            isOver: state === "ok",
            untilMs: until === null ? null : until * 1000,
            trouble: "failing",
          },
  );
}

/**
 * Checks each configured upstream: whether its keys are set, whether it answers a request that costs nothing, and whether
 * it pauses. Drawings need nothing. While one upstream can be used, troubles of the others are warnings.
 */
async function checkUpstreams({
  config,
  directory,
  storage,
  context,
}: {
  config: Config;
  directory: string;
  storage: StoragePlaces;
  context: Pick<CommandContext, "global" | "output" | "clock" | "signal">;
}): Promise<Finding[]> {
  const { signal, global: where } = context;
  if (config.providers.every(({ type }) => type === "procedural")) return [];
  // It needs the database library, which may not load on this system.
  const { openProviderStatus } = await import("../../service/provider-status.ts");
  let status: ProviderStatus;
  try {
    const running = await findRunningProviders(config, directory, context);
    status = await openProviderStatus({ config, directory, storage, running });
  } catch (error) {
    return [failure("data", error, "put a backup in its place, or use another --data")];
  }
  try {
    const reports = await status.report();
    const probes = await status.ask(signal);
    const upstreams = config.providers.filter(({ type }) => type !== "procedural");
    const isAnyUsable = upstreams.some(({ name }) => isUsable(probes.get(name)));
    const findings: Finding[] = [];
    for (const entry of upstreams) {
      const report = reports.find(({ name }) => name === entry.name);
      const probe = probes.get(entry.name);
      findings.push(findingOf(entry, report, probe, { isAnyUsable, where }));
      if (probe?.isOk) findings.push(...(await checkModels(config, entry, signal)));
    }
    return findings;
  } finally {
    await status.close();
  }
}

/** Checks whether the vendor still offers the configured models. A run does not start on one that is gone. */
async function checkModels(config: Config, entry: ProviderEntry, signal: AbortSignal): Promise<Finding[]> {
  const troubles = await modelTroubles(config, entry, signal);
  return troubles.map(({ message, isOffered, isDefault, successor }) => {
    const use = successor === null ? "name another model with --model" : `use --model ${successor}`;
    const text = named(entry.name, message);
    return !isOffered && isDefault ? fail("model", "usage", text, use) : warn("model", text, use);
  });
}

function isUsable(probe: Probe | undefined): boolean {
  return probe !== undefined && (probe.isOk || probe.isKeyElsewhere === true);
}

function findingOf(
  entry: ProviderEntry,
  report: ProviderReport | undefined,
  probe: Probe | undefined,
  { isAnyUsable, where }: { isAnyUsable: boolean; where: Whereabouts },
): Finding {
  const { name, type, address } = identityOf(entry);
  if (probe && !probe.isOk && !probe.isKeyElsewhere) {
    const message = named(name, probe.message);
    const advice = report?.disabled ? setKeys(entry) : adviceAgainst(probe.trouble, entry, address);
    if (isAnyUsable) return warn("upstream", message, advice);
    return fail("upstream", exitOfTrouble(probe.trouble), message, advice);
  }
  const [trouble] = report?.troubles ?? [];
  const answers = probe?.isOk ? "answers" : "was not asked, because only the running service has its key";
  if (!trouble) return ok("upstream", `${name} ${answers} (${[type, address ?? []].flat().join(", ")})`);
  const state = trouble.untilMs === null ? "is disabled" : "pauses";
  const message = `${name} ${answers}, but ${state}: ${unnamed(name, trouble.message)}`;
  const again = nextCommand(where, "providers", { flag: "--probe" });
  return warn("upstream", message, `use it again at once: ${again}`);
}

function setKeys(entry: ProviderEntry): string {
  const keys = secretVariables(entry).map((name) => `export ${name}=<your key>`);
  return keys.join("; ");
}

/** Returns the cheapest step that may help. */
function adviceAgainst(trouble: Trouble | null, entry: ProviderEntry, address: string | null): string {
  const keys = secretVariables(entry).join(" and ");
  switch (trouble) {
    case "credential":
      return keys === "" ? "name the variable with its key in the configuration" : `check the key in ${keys}`;
    case "billing":
      return "check the credit and the limits of the account at the upstream";
    case "forbidden":
      return "check what the key is permitted to do, and from where";
    case "unreachable":
      return `check that ${address} is right and runs, the network and the proxy`;
    case "no-model":
      return `check that ${address} and the models of the configuration are right`;
    default:
      return "wait, and try again";
  }
}

const options = {
  ...storageOptions,
  upstream: upstreamOption,
  agree: option.flag({
    flags: "--agree",
    description: "agree to imgbatch.config.json of this directory as it is now",
  }),
};
type Context = CommandContext<option.Values<typeof options>>;

export const command = defineCommand({
  options,
  examples: ["imgbatch doctor", "imgbatch doctor --upstream google", "imgbatch doctor --json"],
  notes: [
    "A stranger may have written imgbatch.config.json of a directory: before a command uses it, you have to read it and to agree once. A changed file asks again. Presets, the names and concurrency of providers, and limits below the defaults need no consent; a file that --config names needs none either.",
  ],
  exits: ["auth", "money", "conflict", "temporary", "saving"],
  run,
});

/** `imgbatch doctor`: checks everything that a run needs, and advises how to solve each problem. */
async function run(context: Context): Promise<CommandResult> {
  const findings = await examine(context);
  const exitCode = worstExitCode(findings);
  const bad = findings.filter(({ state }) => state === "fail").length;
  context.output.note(bad === 0 ? "No problems found" : counted(bad, "problem"));
  return { exitCode, json: { findings: findings.map(toJson) }, lines: findings.flatMap(linesOf) };
}

async function examine(context: Context): Promise<Finding[]> {
  const { global, options, cwd } = context;
  const environment = readEnvironment();
  const { upstream = null } = options;
  const { config, finding } = await checkConfig(context);
  const named = global.baseUrl ?? environment.baseUrl ?? config?.baseUrl ?? null;
  const isEmbedded = named === null;
  if (upstream !== null && !isEmbedded) throw upstreamElsewhere(named);
  const findings = [
    checkNode(process.versions.node),
    ...(await checkNativeParts(isEmbedded)),
    finding,
    ...(await checkDirectory("output", cwd)),
  ];
  if (config === null) return findings;
  const data = dataDirectoryOf(global.data, environment, cwd);
  const { storage, finding: place } = readStorage(context, config);
  if (storage === null) return [...findings, ...place];
  const shared = await checkStorage(storage, data);
  findings.push(...shared);
  if (!isEmbedded) return [...findings, ...(await checkNamed(context))];
  findings.push(...(await checkDirectory("data", data)), ...(await checkSecrecy(data)));
  // Without the native modules or with a damaged directory nothing can be known of upstreams.
  if (worstExitCode(findings) === 0)
    findings.push(...(await checkUpstreams({ config, directory: data, storage, context })));
  findings.push(...undercharging(config).map(({ message, advice }) => warn("price", message, advice)));
  // Its processes are found by their addresses, which only their callers know.
  if (storage.database.kind === "postgres") return findings;
  context.output.detail(`data directory: ${data}`);
  const service = await findRunning(data);
  const answers = service === null ? [] : await checkService(service, context);
  const isAnswering = answers.some(({ check, state }) => check === "service" && state === "ok");
  const owner = await checkOwner(data, isAnswering);
  if (isAnswering || owner.length > 0) return [...findings, ...(isAnswering ? answers : []), ...owner];
  // The embedded service cannot start if its data directory is not writable.
  if (findings.some(({ check, state }) => check === "data" && state === "fail")) return findings;
  return [...findings, ok("service", "the embedded one; it starts with the command that needs it")];
}

async function checkNamed(context: CommandContext): Promise<Finding[]> {
  let service: ReachableService;
  try {
    service = await context.connect({ workers: false });
  } catch (error) {
    const isKey = error instanceof ImgbatchError && errorEntry(error.code).exit === "auth";
    const usual = isKey ? "set IMGBATCH_API_KEY, or use --api-key-file" : "write it as the message says";
    return [failure(isKey ? "key" : "service", error, usual)];
  }
  return checkService(service, context);
}

/** Reads the configuration, and with `--agree` stores the user's consent to its file. Without consent there is none. */
async function checkConfig(context: Context): Promise<{ config: Config | null; finding: Finding }> {
  try {
    const { agree: agrees } = context.options;
    const choice = configChoice(context);
    const { config } = readConfig(choice);
    // The consent is also to recording.
    const { found } = readConfig({ ...choice, records: agrees });
    if (found === null) return { config, finding: ok("config", "is right") };
    if (!agrees) {
      requireAgreed(found);
      return { config, finding: ok("config", "is right, and you have agreed to it") };
    }
    const store = agreementsFile();
    await saving(store, () => agreeTo(found));
    const message = `is right, and you agree to ${found.fields.join(", ")} (kept in ${store})`;
    return { config, finding: ok("config", message) };
  } catch (error) {
    const usual = `fix it; \`${programName()} schema config\` prints every key`;
    return { config: null, finding: failure("config", error, usual) };
  }
}

function readStorage(
  context: CommandContext,
  config: Config,
): { storage: StoragePlaces | null; finding: Finding[] } {
  try {
    return { storage: storageOf(context, config), finding: [] };
  } catch (error) {
    return { storage: null, finding: [failure("storage", error, "write it as the message says")] };
  }
}

function toJson({ check, state, message, advice, exit }: Finding): object {
  return {
    check,
    state,
    message,
    ...(advice === null ? {} : { advice }),
    ...(exit === null ? {} : { exit }),
  };
}

const NAME_WIDTH = 15;

function linesOf({ check, state, message, advice }: Finding): string[] {
  const head = `${state.padEnd(5)}${check.padEnd(NAME_WIDTH)}${message}`;
  return advice === null ? [head] : [head, `${" ".repeat(5 + NAME_WIDTH)}-> ${advice}`];
}

/** Checks the Node version against the `engines` of the package (`>=20.19`). */
export function checkNode(version: string, wanted = wantedNode()): Finding {
  const isEnough = compare(version, wanted) >= 0;
  return isEnough
    ? ok("node", version)
    : fail("node", "internal", `${version} is older than ${wanted}`, `install Node ${wanted} or newer`);
}

function wantedNode(): string {
  const { engines } = JSON.parse(readFileSync(packageFile("package.json"), "utf8"));
  return String(engines.node).replace(/^\D+/, "");
}

function compare(a: string, b: string): number {
  const [x, y] = [a.split("."), b.split(".")];
  for (let i = 0; i < 3; i++) {
    const difference = Number(x[i] ?? 0) - Number(y[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** Checks whether the native modules load. Only the embedded service needs them. */
export async function checkNativeParts(
  isEmbedded: boolean,
  attempt: (part: NativeModule) => Promise<void> = loadNativeModule,
): Promise<Finding[]> {
  return Promise.all(
    NATIVE_MODULES.map(async (part) => {
      try {
        await attempt(part);
        return ok(part, "works");
      } catch (error) {
        const reason = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
        const advice = moduleAdvice(part);
        const message = `does not load: ${reason}`;
        return isEmbedded ? fail(part, "internal", message, advice) : warn(part, message, advice);
      }
    }),
  );
}
