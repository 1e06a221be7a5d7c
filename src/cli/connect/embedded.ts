import { goOn, stopGoing } from "../../client/batches.ts";
import { createServiceHttp } from "../../client/service-http.ts";
import type { Config } from "../../config/schema.ts";
import {
  identityOf,
  isProceduralOnly,
  keyProblemOf,
  type ProviderIdentity,
  secretVariables,
} from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readStorageEnvironment, secretOf } from "../../environment.ts";
import { isPrivateHost } from "../../http/addresses.ts";
import { environmentProxies } from "../../http/proxies.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";
import { programName } from "../../kernel/command-line.ts";
import type { Log } from "../../kernel/log.ts";
import { isJobType, PRESETS } from "../../providers/catalogue/catalogue.ts";
import type { Service } from "../../service/start-service.ts";
import type { Output } from "../command.ts";
import { isInterruption } from "../interruption.ts";
import { paidRequestsNote } from "../terminal.ts";
import type { DisabledProvider, FoundService, ReachableService, ServiceNeeds } from "./connection.ts";
import { findRunning } from "./running-service.ts";

/** Running items get this long at the end of a command; then they are parked for the next one. */
const GRACE_MS = 1000;
/** How long to wait for the service of another command that owns the directory. */
const OWNER_PATIENCE_MS = 20_000;
const OWNER_POLL_MS = 100;

interface Embedding {
  /** Null: the defaults. */
  config: Config | null;
  dataDirectory: string;
  needs: ServiceNeeds;
  output: Pick<Output, "warn" | "note" | "detail">;
  signal: AbortSignal;
  /** For tests. */
  clock?: Clock;
}

/**
 * Connects to the embedded service: the one that already runs on the data directory, else a new one inside this process
 * on a free loopback port. Two commands that start at the same time share one service. For a command that wants images:
 * throws `DATA_DIRECTORY_IN_USE` if the running service has other providers than the configuration, and
 * `API_KEY_REQUIRED`, before anything is created, if no provider has its key.
 */
export async function connectEmbedded(embedding: Embedding): Promise<FoundService> {
  const { dataDirectory, needs, signal, clock = systemClock } = embedding;
  const upstream = needs.upstream?.name ?? null;
  const wantsImages = needs.images ?? needs.workers;
  if (needs.images === true && embedding.config !== null) {
    const { undercharging } = await import("../../config/schema.ts");
    for (const { message, advice } of undercharging(embedding.config))
      embedding.output.warn(`${message}: the upstream's bill is higher than the cost said here; ${advice}`);
  }
  // An attempt waits for the owner, too: the number of attempts says little about the time.
  const startMs = clock.monotonicMs();
  for (;;) {
    const running = await findRunning(dataDirectory);
    if (running && (running.workers || !needs.workers)) {
      if (wantsImages) requireSameProviders(embedding, running.providers);
      if (needs.unknownOutcome !== undefined) {
        const message = `--unknown: the service of another process works on ${dataDirectory}, by a rule of its own.`;
        const advice = "run the same command again once the other one has ended, or leave out --unknown";
        throw new ImgbatchError("DATA_DIRECTORY_IN_USE", message, { advice });
      }
      const { baseUrl, apiKey, confirm, providers, endsWithCommand } = running;
      const disabled = () => disabledOf(providers);
      const noteDrawings = drawingsNote(embedding, providers);
      const facts = { dataDirectory, noteDrawings, upstream, providers, disabled };
      const names = namesAt(running, clock);
      return {
        baseUrl,
        apiKey,
        confirm,
        kind: "running",
        isLocal: true,
        stopsWithCommand: endsWithCommand,
        ...names,
        ...facts,
      };
    }
    requireLocalStorage(embedding.config);
    const config = withRule(embedding.config ?? (await defaultConfig()), needs);
    if (wantsImages) requireKeys(config);
    for (const { name, type, concurrency } of config.providers.flatMap((entry) =>
      "of" in entry ? [] : entry,
    ))
      if (needs.concurrency !== undefined && concurrency !== needs.concurrency && !isJobType(type))
        embedding.output.note(`${name} makes ${concurrency} at once, as the configuration says`);
    const providers = config.providers.map(identityOf);
    const noteDrawings = drawingsNote(embedding, providers);
    try {
      const own = await startOwn({ ...embedding, config });
      return { ...own, dataDirectory, upstream, providers, noteDrawings };
    } catch (error) {
      const isOwned = error instanceof ImgbatchError && error.code === "DATA_DIRECTORY_IN_USE";
      if (!isOwned || clock.monotonicMs() - startMs >= OWNER_PATIENCE_MS) throw error;
    }
    await clock.sleep(OWNER_POLL_MS, signal);
  }
}

function withRule(config: Config, { unknownOutcome }: ServiceNeeds): Config {
  return unknownOutcome === undefined ? config : { ...config, limits: { ...config.limits, unknownOutcome } };
}

/** How often a command says again which batches it names. The service waits three times as long. */
const NAME_AGAIN_MS = 2000;
const LEAVE_TIMEOUT_MS = 2000;

/** Names batches at the service of another process, again and again until the command leaves or the process ends. */
function namesAt(service: ReachableService, clock: Clock) {
  const { baseUrl, apiKey, confirm } = service;
  const http = createServiceHttp({
    baseUrl,
    apiKey,
    clock,
    random: Math.random,
    ...(confirm === undefined ? {} : { confirm }),
  });
  const names = new Set<string>();
  const leaving = new AbortController();
  const nameAgain = async () => {
    while (names.size > 0) {
      await clock.sleep(NAME_AGAIN_MS, leaving.signal);
      for (const id of names) {
        const batch = await goOn(http, id, true, leaving.signal).catch(() => null);
        if (batch?.isDone) names.delete(id);
      }
    }
  };
  return {
    goOn: async (id: string) => {
      await goOn(http, id, true, leaving.signal);
      names.add(id);
      if (names.size === 1) nameAgain().catch(() => {});
    },
    stop: async () => {
      leaving.abort();
      const signal = AbortSignal.timeout(LEAVE_TIMEOUT_MS);
      await Promise.all([...names].map((id) => stopGoing(http, id, signal).catch(() => {})));
      names.clear();
    },
  };
}

async function defaultConfig(): Promise<Config> {
  const { parseConfig } = await import("../../config/load.ts");
  return parseConfig({}, "built-in defaults");
}

async function startOwn({
  config,
  dataDirectory,
  needs,
  output,
  signal,
}: Embedding & { config: Config }): Promise<Omit<FoundService, "upstream" | "noteDrawings">> {
  const { startService } = await import("../../service/start-service.ts");
  const { createLog } = await import("../../service/pino-log.ts");
  const service = await startService({
    config,
    dataDirectory,
    address: { host: "127.0.0.1", port: 0 },
    endsWithCommand: true,
    workers: needs.workers,
    log: quietLog(
      createLog({ level: "warn", forPeople: true, write: (line) => output.detail(line.trimEnd()) }),
      output,
    ),
  });
  const paidRequests = () => service.queue().paid;
  return {
    baseUrl: service.url,
    apiKey: service.credentials.api_key,
    kind: "embedded",
    isLocal: true,
    stopsWithCommand: true,
    failed: service.failed,
    disabled: () => disabledNow(service),
    goOn: service.goOn,
    paidRequests,
    pause: service.pause,
    stop: async () => {
      const how = isInterruption(signal.reason) ? "a second Ctrl-C" : "Ctrl-C twice";
      const note = paidRequestsNote(paidRequests(), how);
      if (note !== null && !service.failed.aborted) output.note(note);
      await service.close(service.failed.aborted ? 0 : GRACE_MS);
    },
  };
}

/**
 * The log of a service inside a command. What became of a run is in the command's own messages, so its lines are shown with
 * `--verbose` only; but what a person has to do about this machine is always shown.
 */
function quietLog(log: Log, output: Pick<Output, "warn">): Log {
  const warn: Log["warn"] = (message, facts = {}) =>
    "advice" in facts ? output.warn(`${message}: ${facts.advice}`) : log.warn(message, facts);
  return { ...log, warn };
}

function disabledNow({ health }: Service): DisabledProvider[] {
  return health.providers
    .flatMap((provider) => health.blocksOf(provider))
    .filter(({ untilMs }) => untilMs === null)
    .map(({ provider, message, trouble }) => ({
      provider,
      message,
      trouble: trouble === "forbidden" ? trouble : "credential",
    }));
}

function disabledOf(providers: readonly ProviderIdentity[]): DisabledProvider[] {
  return providers.flatMap(({ name, disabled: message }) =>
    message === undefined ? [] : [{ provider: name, message, trouble: "credential" as const }],
  );
}

/** A command whose providers draw takes every running service. */
function requireSameProviders(
  { config, dataDirectory, needs }: Embedding,
  running: readonly ProviderIdentity[],
): void {
  if (config === null || isProceduralOnly(config)) return;
  const identities = config.providers.map(identityOf);
  const wanted = providersInWords(identities);
  if (providersInWords(running) === wanted) return;
  const there = running.map((each) => providersInWords([each]));
  const isAmong = identities.every((each) => there.includes(providersInWords([each])));
  if (isAmong && (needs.upstream?.besides ?? []).length > 0) return;
  const message = `The service that runs on ${dataDirectory} makes images with ${providersInWords(running) || "drawings"}, and this command asks for ${wanted}.`;
  throw new ImgbatchError("DATA_DIRECTORY_IN_USE", message);
}

/** Names providers with their types and addresses. */
export function providersInWords(providers: readonly ProviderIdentity[]): string {
  return providers
    .map(({ name, type, address }) => `${name} (${[type, address ?? []].flat().join(", ")})`)
    .join(", ");
}

/** See `noteDrawings` of a connection. */
function drawingsNote({ output, needs }: Embedding, providers: readonly ProviderIdentity[]): () => void {
  const [first] = providers;
  let unsaid = providers.every(({ type }) => type === first?.type) ? first?.type : undefined;
  return () => {
    const type = unsaid;
    unsaid = undefined;
    if (type === "replay")
      output.warn("using recorded images, not a model, because the configuration has `replay`");
    if (type !== "procedural") return;
    // Other commands have no --upstream.
    const advice = needs.upstream === null ? upstreamAdvice() : "set IMGBATCH_BASE_URL for a real one";
    output.warn(`using the embedded service (procedural drawings, not a model); ${advice}`);
  };
}

/**
 * Throws `USAGE` for a proxy of the environment that is none and would be asked, `INVALID_API_KEY` for a key that cannot be
 * sent, and `API_KEY_REQUIRED`, naming the variables, if no provider can make images because each lacks its key.
 */
export function requireKeys({ providers }: Pick<Config, "providers">): void {
  requireSendableKeys({ providers });
  const missing = providers.map((entry) => secretVariables(entry).filter((name) => secretOf(name) === null));
  if (providers.length === 0 || missing.some((names) => names.length === 0)) return;
  const names = [...new Set(missing.flat())];
  const whose = providers.map(({ name }) => name).join(" or ");
  const are = names.length === 1 ? "is" : "are";
  const message = `${names.join(" and ")} ${are} not set: images by ${whose} need ${names.length === 1 ? "it" : "them"}. Nothing was sent.`;
  const advice = `${names.map((name) => `export ${name}=<your key>`).join("; ")}, then run the same command again`;
  throw new ImgbatchError("API_KEY_REQUIRED", message, { advice });
}

/**
 * Throws `USAGE` for a proxy that is none, and `INVALID_API_KEY` for a key that holds characters that cannot be sent. With
 * `mayLackKeys` only if all providers have such keys: the others go on without those.
 */
export function requireSendableKeys({ providers }: Pick<Config, "providers">, mayLackKeys = false): void {
  for (const entry of providers) {
    if (!("baseUrl" in entry) || isPrivateHost(new URL(entry.baseUrl).hostname)) continue;
    environmentProxies(new URL(entry.baseUrl));
  }
  const problems = providers.map((entry) => ({ entry, problem: keyProblemOf(entry, secretOf) }));
  const first = problems.find(({ problem }) => problem !== null);
  if (first === undefined || (mayLackKeys && problems.some(({ problem }) => problem === null))) return;
  const again = secretVariables(first.entry).map((name) => `export ${name}=<your key>`);
  throw new ImgbatchError("INVALID_API_KEY", `${first.problem}. Nothing was sent.`, {
    advice: `copy the key once more: ${again.join("; ")}; then run the same command again`,
  });
}

/** Returns how to get real images: with a well-known key that is in the environment, else with that of the first preset. */
function upstreamAdvice(): string {
  const presets = PRESETS.filter(({ keyVariable }) => keyVariable !== null);
  const ready = presets.find(({ keyVariable }) => keyVariable !== null && secretOf(keyVariable) !== null);
  if (ready !== undefined) return `${ready.keyVariable} is set: add --upstream ${ready.name} for real images`;
  const [first] = presets;
  return `for real images set ${first?.keyVariable} to your key and add --upstream ${first?.name}, or another name (--help)`;
}

/**
 * Throws `INVALID_CONFIG` for a command that would start the embedded service while the configuration or the environment
 * names a shared database or a bucket: what the embedded service makes would not be in them.
 */
function requireLocalStorage(config: Pick<Config, "storage"> | null): void {
  const { database = "sqlite", blobs = "files" } = config?.storage ?? {};
  const { databaseUrl } = readStorageEnvironment();
  if (database === "sqlite" && blobs === "files" && databaseUrl === undefined) return;
  const where = databaseUrl === undefined ? "storage of the configuration" : "IMGBATCH_DATABASE_URL";
  const message = `The embedded service keeps its data in the data directory, and ${where} names another place.`;
  const advice = `start \`${programName()} serve\` there, and set IMGBATCH_BASE_URL and IMGBATCH_API_KEY for this command`;
  throw new ImgbatchError("INVALID_CONFIG", message, { advice });
}
