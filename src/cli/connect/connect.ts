import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { goOn } from "../../client/batches.ts";
import { createServiceHttp } from "../../client/service-http.ts";
import { loadUnlessDefault } from "../../config/load-unless-default.ts";
import { dataDirectoryOf, type PricedModel } from "../../config/paths.ts";
import type { Config } from "../../config/schema.ts";
import { identityOf, keyProblem, type ProviderIdentity } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { DEFAULT_LIMITS, type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import { named } from "../../contract/waiting.ts";
import { type Environment, readEnvironment } from "../../environment.ts";
import type { Attempt, Http } from "../../http/http.ts";
import { environmentProxies } from "../../http/proxies.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { isLoopback } from "../../kernel/loopback.ts";
import { microsToNumber } from "../../kernel/money.ts";
import { PRESETS } from "../../providers/catalogue/catalogue.ts";
import { EMBEDDED, keyFingerprint } from "../../runs/directory/run-service.ts";
import { refusingServer } from "../../runs/wait.ts";
import type { CommandContext, Output } from "../command.ts";
import type { GlobalOptions } from "../options.ts";
import { readAll, type Terminal } from "../terminal.ts";
import type {
  ConnectedService,
  FoundService,
  ReachableService,
  ServiceNeeds,
  UpstreamChoice,
} from "./connection.ts";
import { connectEmbedded } from "./embedded.ts";
import { findRunning } from "./running-service.ts";

/** The parts of the context that connecting needs. The signal stops it. */
interface Surroundings extends Pick<Terminal, "stdin" | "cwd">, Pick<CommandContext, "clock"> {
  output: Output;
  signal: AbortSignal;
}

/**
 * Opens the service: the base URL of the flag, the environment or the configuration file; else the embedded one.
 * Throws `API_KEY_REQUIRED` without a key for a named service, the errors of `loadConfig`, and `USAGE` if `--upstream` is
 * typed for a named service, which has its own.
 */
export async function openService(
  global: GlobalOptions,
  needs: ServiceNeeds,
  surroundings: Surroundings,
): Promise<ConnectedService> {
  const { output, signal, cwd } = surroundings;
  const { environment, config, dataDirectory, baseUrl } = await settingsOf(global, needs, cwd);
  if (baseUrl === null)
    return opened(await connectEmbedded({ config, dataDirectory, needs, output, signal }), surroundings);
  if (needs.unknownOutcome !== undefined) {
    const message = `--unknown is for the service inside imgbatch, and this command talks to ${baseUrl}, which has a rule of its own (limits.unknownOutcome).`;
    throw new ImgbatchError("USAGE", message, { param: "--unknown" });
  }

  const running = await findRunning(dataDirectory);
  const own = running?.baseUrl === baseUrl ? running : null;
  const found: FoundService = {
    baseUrl,
    apiKey: own?.apiKey ?? (await readApiKey(global, environment, surroundings)),
    ...(own === null ? {} : { confirm: own.confirm, providers: own.providers }),
    kind: "remote",
    isLocal: isLoopback(new URL(baseUrl).hostname),
    upstream: null,
    stopsWithCommand: false,
    noteDrawings() {},
    disabled: () => [],
    stop: async () => {},
  };
  return opened(found, surroundings);
}

/**
 * Returns the providers that `openService` would find, and the first model of batches there, without starting or asking a
 * service. A named service has providers of its own. The model is null where only a service knows it: a named one, or one
 * of another process. Throws `USAGE` as `openService` does.
 */
export async function serviceToExpect(
  context: Pick<CommandContext, "global" | "options" | "cwd">,
  upstream: UpstreamChoice | null,
): Promise<{ providers: readonly ProviderIdentity[]; firstModel: () => Promise<string | null> }> {
  const needs = { upstream, priced: pricedModel(context), images: false };
  const { config, dataDirectory, baseUrl } = await settingsOf(context.global, needs, context.cwd);
  const running = await findRunning(dataDirectory);
  const own = baseUrl === null || running?.baseUrl === baseUrl ? running : null;
  const providers = own?.providers ?? (baseUrl === null ? config?.providers.map(identityOf) : null) ?? [];
  const firstModel = async () => {
    if (baseUrl !== null || running !== null) return null;
    const { configSchema, firstBatchModel } = await import("../../config/schema.ts");
    return firstBatchModel(config ?? (configSchema.parse({}) as Config));
  };
  return { providers, firstModel };
}

/**
 * Returns the limits that prompts are checked against when they are read: those of the embedded service, by its configuration;
 * else only what no service takes, since the service itself announces its own. What is wrong with the configuration is
 * reported when the service is used.
 */
export async function expectedLimits(
  { global, cwd }: Pick<CommandContext, "global" | "cwd">,
  upstream: UpstreamChoice | null,
): Promise<Limits> {
  const settings = await settingsOf(global, { upstream }, cwd).catch(() => null);
  if (settings === null || settings.baseUrl !== null) return WIDEST_LIMITS;
  const running = await findRunning(settings.dataDirectory).catch(() => null);
  return running === null ? (settings.config?.limits ?? DEFAULT_LIMITS) : WIDEST_LIMITS;
}

/**
 * Returns a function that finds the service of commands: the named one, else the one that runs on the data directory, or
 * null while none runs. Starts nothing. Throws `API_KEY_REQUIRED` for a named service without a key.
 */
export async function createServiceLocator({
  global,
  cwd,
  output,
  connect,
  signal,
}: CommandContext): Promise<() => Promise<ReachableService | null>> {
  const { dataDirectory, baseUrl } = await settingsOf(global, {}, cwd);
  if (baseUrl === null) {
    output.detail(`data directory: ${dataDirectory}`);
    return () => findRunning(dataDirectory);
  }
  // Connecting to a named service only reads the address and the key. Do it once: standard input can be read once.
  const connection = await connect({ workers: false }, signal);
  return async () => connection;
}

/** Returns what decides the service of a command. `baseUrl` is null for the embedded one. */
async function settingsOf(global: GlobalOptions, needs: Partial<ServiceNeeds>, cwd: string) {
  const environment = readEnvironment();
  const upstream = needs.upstream ?? null;
  const dataDirectory = dataDirectoryOf(global.data, environment, cwd);
  const chosen = global.baseUrl ?? environment.baseUrl;
  const choice = {
    file: global.config,
    cwd,
    priced: needs.priced ?? null,
    concurrency: needs.concurrency,
    replaced: chosen === undefined ? [] : ("all" as const),
  };
  const { name = null, besides = [], isTyped = true } = upstream ?? {};
  const config = await loadUnlessDefault({ ...choice, upstream: name, besides }).catch((error) => {
    const isForgotten = !isTyped && error instanceof ImgbatchError && error.param === "--upstream";
    if (!isForgotten) throw error;
    // What was made is there all the same.
    if ((needs.images ?? needs.workers) === false) return loadUnlessDefault(choice);
    const message = `The run was made with the upstream ${JSON.stringify(name)}, which is not there. ${error.message}`;
    const advice = "name the configuration that has it: --config FILE";
    throw new ImgbatchError("DIRECTORY_CONFLICT", message, { cause: error, advice });
  });
  const named = chosen ?? config?.baseUrl ?? null;
  const baseUrl = named === null ? null : checkedUrl(named);
  if (baseUrl !== null && upstream?.isTyped) throw upstreamElsewhere(baseUrl);
  if (baseUrl !== null) environmentProxies(new URL(baseUrl));
  return { environment, config, dataDirectory, baseUrl };
}

/** The error of `--upstream` together with the address of a service. */
export function upstreamElsewhere(baseUrl: string): ImgbatchError {
  const message = `--upstream is for the service inside imgbatch, and this command talks to ${checkedUrl(baseUrl)}: leave out --upstream, or the base URL (--base-url, IMGBATCH_BASE_URL, or baseUrl in the configuration).`;
  return new ImgbatchError("USAGE", message, { param: "--upstream" });
}

/**
 * Returns a base URL without a slash at its end. Throws `USAGE` for any other text, and shows it only if it has no part
 * that can hold a password or a key.
 */
function checkedUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isHttp = url?.protocol === "http:" || url?.protocol === "https:";
  if (!url || !isHttp || `${url.username}${url.password}${url.search}${url.hash}` !== "") {
    const shown = /[@?#]/.test(text) ? "the given address" : JSON.stringify(text);
    const extra = url && isHttp ? ", without user, password, query or fragment" : "";
    const lacksScheme =
      shown !== "the given address" && /^(?:localhost|[\w-]*\.[\w.-]+|\w+:\d)[\w:]*(?:\/|$)/.test(text);
    const meant = lacksScheme ? `; did you mean http://${text}?` : "";
    const message = `base URL: ${shown} is not like https://host or https://host/path${extra}${meant}`;
    throw new ImgbatchError("USAGE", message);
  }
  return url.href.replace(/\/+$/, "");
}

type Input = Pick<Surroundings, "stdin" | "signal" | "cwd">;

async function readApiKey(global: GlobalOptions, environment: Environment, input: Input): Promise<string> {
  const key = await givenApiKey(global, environment, input);
  if (key === undefined) {
    const message = "No API key: set IMGBATCH_API_KEY, or use --api-key-file or --api-key-stdin.";
    throw new ImgbatchError("API_KEY_REQUIRED", message);
  }
  if (key === "") throw new ImgbatchError("API_KEY_REQUIRED", `No API key: ${sourceOf(global)} is empty.`);
  const problem = keyProblem(sourceOf(global), key);
  if (problem !== null) throw new ImgbatchError("INVALID_API_KEY", `${problem}.`);
  return key;
}

async function givenApiKey(
  global: GlobalOptions,
  environment: Environment,
  input: Input,
): Promise<string | undefined> {
  if (global.apiKeyFile !== undefined) {
    try {
      return (await readFile(resolve(input.cwd, global.apiKeyFile), "utf8")).trim();
    } catch (error) {
      throw new ImgbatchError("USAGE", `--api-key-file: ${global.apiKeyFile} cannot be read`, {
        cause: error,
      });
    }
  }
  if (global.apiKeyStdin) return readPipedKey(input);
  return environment.apiKey;
}

/** Never reads from a terminal, which would show the key on the screen. */
async function readPipedKey({ stdin, signal }: Input): Promise<string> {
  if (stdin.isTTY === true) {
    const message =
      "--api-key-stdin: standard input is a terminal. Pipe the key into the command, or use --api-key-file.";
    throw new ImgbatchError("USAGE", message, { param: "--api-key-stdin" });
  }
  return new TextDecoder().decode(await readAll(stdin, signal)).trim();
}

function sourceOf({ apiKeyFile, apiKeyStdin }: GlobalOptions): string {
  if (apiKeyFile !== undefined) return `${apiKeyFile} (--api-key-file)`;
  return apiKeyStdin ? "standard input (--api-key-stdin)" : "IMGBATCH_API_KEY";
}

/** A service of another process may end at any time. Then another is found or started, at most this often. */
const CONNECTIONS = 5;

/**
 * Connects, runs the work, and disconnects. If the embedded service of another process ends meanwhile, runs the work
 * again with a new one. The work must therefore be repeatable.
 */
export async function withService<T>(
  context: CommandContext,
  needs: ServiceNeeds,
  work: (service: ConnectedService) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const { unknownOutcome, concurrency } = context.options;
    const all = { ...needs, priced: pricedModel(context), unknownOutcome, concurrency };
    const service = await context.connect(all, context.signal);
    const { kind, baseUrl } = service;
    // `generate --file` sends as many requests at once to any service.
    if (concurrency !== undefined && kind !== "embedded" && context.options.promptFile === undefined)
      context.output.note(
        `--concurrency has no effect: the service at ${baseUrl} decides how many images it makes at once`,
      );
    context.output.detail(`service: ${baseUrl} (${WHOSE[kind]})`);
    try {
      return await work(service);
    } catch (error) {
      if (attempt >= CONNECTIONS || !isGone(error))
        throw explainRefused(explainUnlisted(error, service), service);
      context.output.warn("the service of the other process has ended; going on without it");
    } finally {
      await service.stop();
    }
  }
}

/** How long a service may take for what only completes a message. */
const ONCE_MS = 10_000;

/** Asks the service something that only completes a message: once, without a word about what fails. */
export async function askOnce(
  context: CommandContext,
  upstream: UpstreamChoice | null,
  ask: (http: Http, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const signal = AbortSignal.any([context.signal, AbortSignal.timeout(ONCE_MS)]);
  try {
    const needs = { workers: false, images: true, upstream, priced: pricedModel(context) };
    const service = await context.connect(needs, signal);
    try {
      await ask(httpTo(service, context, { maxRetries: 0 }), signal);
    } finally {
      await service.stop();
    }
  } catch (error) {
    context.signal.throwIfAborted();
    if (!(error instanceof ImgbatchError) && !signal.aborted) throw error;
  }
}

const WHOSE = {
  remote: "named by the caller",
  running: "embedded, in another process",
  embedded: "embedded, in this process",
} as const satisfies Record<ConnectedService["kind"], string>;

/** Lets a command ask a service: `output` gets what its requests come to. */
export function opened(
  service: FoundService,
  { output, clock }: Pick<CommandContext, "output" | "clock">,
): ConnectedService {
  const { baseUrl, apiKey, kind } = service;
  const http = httpTo(
    service,
    { output, clock },
    {
      explain: (error) => explainRefused(error, service),
      onRetry: (error, delayMs, maybePaid) => {
        const { code, message } = error;
        output.event({ event: "retry", code, message, delay_ms: delayMs });
        const again = `${message.replace(/\.?$/, ".")} Trying again in ${formatDuration(delayMs)}.`;
        if (maybePaid) output.warn(again);
        else output.progress(again);
      },
    },
  );
  return {
    goOn: async (id) => void (await goOn(http, id, false)),
    ...service,
    http: kind === "running" ? endingWithItsCommand(http) : http,
    identity: kind === "remote" ? baseUrl : EMBEDDED,
    keyFingerprint: keyFingerprint(apiKey),
    readsConfiguration: kind === "embedded",
  };
}

/** A service inside another command does not come back under its address: without an answer it has ended, `SERVICE_GONE`. */
function endingWithItsCommand({ baseUrl, json, stream }: Http): Http {
  const gone = (error: unknown): never => {
    if (!(error instanceof ImgbatchError)) throw error;
    const { code, message, cause } = error;
    if (code === "NETWORK") throw new ImgbatchError("SERVICE_GONE", message, { ...error, cause: error });
    // It stays unknown whether the batch was made.
    const isGone =
      code === "SUBMISSION_UNKNOWN" && cause instanceof ImgbatchError && cause.code === "NETWORK";
    if (!isGone) throw error;
    throw new ImgbatchError(code, message, { ...error, cause: new ImgbatchError("SERVICE_GONE") });
  };
  return {
    baseUrl,
    json: (request) => json(request).catch(gone),
    stream: (request, read) => stream(request, read).catch(gone),
  };
}

const UNLISTED: readonly string[] = ["BATCH_IMAGE_INVALID_MODEL", "REALTIME_MODEL_NOT_FOUND"];

/** The model of a command with its `--unit-cost`; null without that. */
function pricedModel({ options }: Pick<CommandContext, "options">): PricedModel | null {
  const { model = null, unitCostMicroUsd: micros } = options;
  return micros === undefined ? null : { id: model, usd: microsToNumber(micros) };
}

/** The embedded service lists no model whose provider is disabled: then the provider is to be mended, not the model. */
function explainUnlisted(error: unknown, { kind, providers = [], disabled }: FoundService): unknown {
  const unusable = disabled();
  const [first] = unusable;
  if (!(error instanceof ImgbatchError) || !UNLISTED.includes(error.code)) return error;
  if (first === undefined) {
    if (kind === "remote" || providers.every(({ free }) => free)) return error;
    const advice =
      "a model whose price is not known here needs one: --model ID --unit-cost USD, or `prices` in the configuration";
    return new ImgbatchError(error.code, error.message, { ...error, advice, cause: error });
  }
  const why = unusable.map(({ provider, message }) => named(provider, message.replace(/\.$/, ""))).join("; ");
  const code = first.trouble === "forbidden" ? "PROVIDER_FORBIDDEN" : "PROVIDER_CREDENTIAL";
  return new ImgbatchError(code, `${error.message} ${why}. Nothing was sent.`, { cause: error });
}

const UNREACHABLE: readonly string[] = ["PROVIDER_UNREACHABLE", "REALTIME_PROVIDER_UNREACHABLE"];

/** A server on this machine that refuses connections has to be started: trying again does not help. */
function explainRefused<E>(error: E, { kind, providers = [] }: FoundService): E | ImgbatchError {
  if (kind === "remote" || !(error instanceof ImgbatchError) || !UNREACHABLE.includes(error.code))
    return error;
  const server = error.advice === undefined ? refusingServer(error.message, providers) : null;
  if (server === null) return error;
  const message = `${error.message} No server listens at ${server.address}.`;
  const rest = error.code === "PROVIDER_UNREACHABLE" ? ": it continues where it stopped" : "";
  return new ImgbatchError("PROVIDER_UNREACHABLE", message, {
    requestId: error.requestId,
    advice: `${howToStart(server)}, then run the same command again${rest}`,
    cause: error,
  });
}

/** Says how to start the server of a provider on this machine, by the port of its address. */
function howToStart({ name, address }: { name: string; address: string }): string {
  const { port } = new URL(address);
  const known = PRESETS.find(
    ({ preparation, provider: { baseUrl } }) => preparation && baseUrl && new URL(baseUrl).port === port,
  );
  return (
    known?.preparation ?? `start the server at ${address}, or correct the \`baseUrl\` of the provider ${name}`
  );
}

/** An unknown submission of an earlier command says nothing about the service. */
function isGone(error: unknown): boolean {
  if (!(error instanceof ImgbatchError)) return false;
  return error.code === "SERVICE_GONE" || (error.code === "SUBMISSION_UNKNOWN" && isGone(error.cause));
}

type HttpChoices = Partial<Parameters<typeof createServiceHttp>[0]>;

/** Sends requests to a service; `--verbose` shows each one. */
export function httpTo(
  { baseUrl, apiKey, confirm }: ReachableService,
  { output, clock }: Pick<CommandContext, "output" | "clock">,
  choices: HttpChoices = {},
): Http {
  return createServiceHttp({
    baseUrl,
    apiKey,
    clock,
    random: Math.random,
    ...(confirm === undefined ? {} : { confirm }),
    onAttempt: (attempt) => output.detail(describeRequest(attempt)),
    ...choices,
  });
}

/** `GET /v1/images/batches: HTTP 200, 12 ms, request id req_…` */
function describeRequest({ method, path, status, durationMs, requestId }: Attempt): string {
  const answer = status === null ? "no answer" : `HTTP ${status}`;
  const id = requestId === undefined ? "" : `, request id ${requestId}`;
  return `${method} ${path}: ${answer}, ${Math.round(durationMs)} ms${id}`;
}
