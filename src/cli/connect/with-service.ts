import { createServiceHttp } from "../../client/service-http.ts";
import { PRESETS } from "../../config/presets.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { named } from "../../contract/waiting.ts";
import type { Attempt, Http } from "../../http/http.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { EMBEDDED, keyFingerprint, type RunService } from "../../runs/directory/run-service.ts";
import { refusingServer } from "../../runs/wait.ts";
import type { CommandContext } from "../command.ts";
import { nextCommand, type Whereabouts } from "../output/next-step.ts";
import type { ServiceConnection, ServiceNeeds } from "./connection.ts";

export interface ConnectedService extends RunService {
  kind: ServiceConnection["kind"];
  /** Notes once that images are drawings, if the service is one of the data directory. */
  noteDrawings(): void;
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
    const connection = await context.connect(needs, context.signal);
    try {
      return await work(toService(connection, context));
    } catch (error) {
      if (attempt >= CONNECTIONS || !isGone(error))
        throw explainRefused(explainUnlisted(error, connection, context.global), connection);
      context.output.warn("the service of the other process has ended; going on without it");
    } finally {
      if (connection.kind === "embedded") await connection.close();
    }
  }
}

function keyAdvice(where: Whereabouts): string {
  const probe = nextCommand(where, "providers", { flag: "--probe" });
  return `set a key that the upstream takes in the variable of the provider (after a change at the upstream: ${probe}), then run the same command again`;
}

const WHOSE = {
  remote: "named by the caller",
  running: "embedded, in another process",
  embedded: "embedded, in this process",
} as const satisfies Record<ServiceConnection["kind"], string>;

function toService(connection: ServiceConnection, { output, clock }: CommandContext): ConnectedService {
  const { baseUrl, apiKey, confirm, kind, isLocal, providers } = connection;
  const http = createServiceHttp({
    baseUrl,
    apiKey,
    ...(confirm === undefined ? {} : { confirm }),
    explain: (error) => explainRefused(error, connection),
    clock,
    random: Math.random,
    onAttempt: (attempt) => output.detail(describeRequest(attempt)),
    onRetry: (error, delayMs, maybePaid) => {
      const { code, message } = error;
      output.event({ event: "retry", code, message, delay_ms: delayMs });
      const again = `${message.replace(/\.?$/, ".")} Trying again in ${formatDuration(delayMs)}.`;
      if (maybePaid) output.warn(again);
      else output.progress(again);
    },
  });
  output.detail(`service: ${baseUrl} (${WHOSE[kind]})`);
  const common = { kind, keyFingerprint: keyFingerprint(apiKey), isLocal };
  if (connection.kind === "remote")
    return {
      ...{ ...common, http, identity: baseUrl, upstream: null, noteDrawings: () => {} },
      ...(providers === undefined ? {} : { providers }),
    };
  const { dataDirectory, upstream, noteDrawings } = connection;
  return {
    ...common,
    ...{ identity: EMBEDDED, dataDirectory, upstream, noteDrawings, providers: connection.providers },
    http: kind === "running" ? endingWithItsCommand(http) : http,
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

/** The embedded service lists no model whose provider is disabled: then the provider is to be mended, not the model. */
function explainUnlisted(error: unknown, connection: ServiceConnection, where: Whereabouts): unknown {
  const providers = connection.kind === "remote" ? [] : connection.disabled();
  const [first] = providers;
  if (first === undefined || !(error instanceof ImgbatchError) || !UNLISTED.includes(error.code))
    return error;
  const why = providers
    .map(({ provider, message }) => named(provider, message.replace(/\.$/, "")))
    .join("; ");
  const code = first.trouble === "forbidden" ? "PROVIDER_FORBIDDEN" : "PROVIDER_CREDENTIAL";
  return new ImgbatchError(code, `${error.message} ${why}. Nothing was sent.`, {
    advice: keyAdvice(where),
    cause: error,
  });
}

const UNREACHABLE: readonly string[] = ["PROVIDER_UNREACHABLE", "REALTIME_PROVIDER_UNREACHABLE"];

/** A server on this machine that refuses connections has to be started: trying again does not help. */
function explainRefused<E>(error: E, { kind, providers = [] }: ServiceConnection): E | ImgbatchError {
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
  const known = Object.values(PRESETS).find(
    ({ preparation, provider }) =>
      preparation && "baseUrl" in provider && provider.baseUrl && new URL(provider.baseUrl).port === port,
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

/** Describes a request for `--verbose`: `GET /v1/images/batches: HTTP 200, 12 ms, request id req_…`. */
export function describeRequest({ method, path, status, durationMs, requestId }: Attempt): string {
  const answer = status === null ? "no answer" : `HTTP ${status}`;
  const id = requestId === undefined ? "" : `, request id ${requestId}`;
  return `${method} ${path}: ${answer}, ${Math.round(durationMs)} ms${id}`;
}
