import type { Request, RequestHandler, Response } from "express";
import type { LogLine, RequestLine } from "../../contract/activity.ts";
import { type ConsoleBody, type OverviewObject, providerObject } from "../../contract/console-api.ts";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import { activeKey, authenticate as authenticateKey } from "../../domain/accounts.ts";
import type { Feed } from "../../domain/feed.ts";
import { reportProviders, splitTroubles } from "../../domain/health/calls.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { authenticate, authenticateBy, bearerErrors, bearerToken, callerOf } from "../http/authenticate.ts";
import type { Surface } from "../operation.ts";

const MOST_LINES = 100;

/** Lets only the key of `credentials.json` through: it sees what all keys do. */
const requireOwner = (): RequestHandler => (_request, response, next) => {
  if (!callerOf(response).scope.isOwner) throw new ImgbatchError("OWNER_ONLY");
  next();
};

/** `GET /v1/console/service`: providers, workers, problems, queue, disk, and the last requests of all keys. */
function overview(deps: ApiDeps) {
  const last = rememberLines(deps.feed);
  return async (_request: Request, response: Response): Promise<void> => {
    const { stores, facts } = deps;
    const { running, slots, isPaused } = await deps.queueOfAll();
    const pending = await stores.read.batches.pendingItemCount();
    const view: OverviewObject = {
      object: "service.overview",
      data_directory: facts.dataDirectory,
      started_at: toSeconds(facts.startedAtMs),
      disk_free_bytes: await deps.freeDiskBytes().catch(() => null),
      queue: { running, waiting: Math.max(0, pending - running), concurrency: slots, paused: isPaused },
      money: await moneyOfAll(deps),
      batches: await stores.read.batches.unfinishedByStatus(),
      providers: await providersOf(deps),
      workers: (await stores.read.workers.list()).map(({ isPaused, ...worker }) => ({
        ...worker,
        providers: [...worker.providers],
        paused: isPaused,
      })),
      problems: last.problems.map(({ atMs, ...line }) => ({ at: atMs / 1000, ...line })),
      requests: last.requests.map(({ atMs, durationMs, ...line }) => ({
        at: atMs / 1000,
        duration_ms: durationMs,
        ...line,
      })),
    };
    response.json(view);
  };
}

async function providersOf({ stores, health, clock }: ApiDeps): Promise<OverviewObject["providers"]> {
  const reports = await reportProviders(health.providers, {
    read: stores.read,
    nowMs: clock.nowMs(),
    troublesOf: (provider) => health.troublesOf(provider),
  });
  return reports.map((report) => providerObject({ ...report, ...splitTroubles(report) }));
}

async function moneyOfAll({ stores, health }: ApiDeps): Promise<OverviewObject["money"]> {
  // The sum of real money must not hide behind play money.
  const all = await stores.read.accounts.list();
  const isDrawing = health.providers.every(({ upstream }) => upstream === undefined);
  const isPlay = isDrawing && all.length > 0 && all.every((account) => account.isPlay);
  const accounts = all.filter((account) => isPlay || !account.isPlay);
  return {
    balance: microsToNumber(accounts.reduce((sum, each) => sum + each.balanceMicroUsd, 0)),
    held: microsToNumber(accounts.reduce((sum, each) => sum + each.heldMicroUsd, 0)),
    play_money: isPlay,
  };
}

/** `POST` and `DELETE /v1/console/pause`: the workers begin no work; they begin work again. */
function setPaused(isPaused: boolean) {
  return (deps: ApiDeps) =>
    (_request: Request, response: Response): void => {
      deps.setPaused(isPaused);
      response.status(204).end();
    };
}

/** The requests of the page itself, which asks all the time. */
const OWN = /^\/v1\/(?:console\/|events\b)/;

/** Collects the last requests, and the last warnings and errors of the log, the newest first. The feed ends with the service. */
function rememberLines(feed: Feed): { requests: readonly RequestLine[]; problems: readonly LogLine[] } {
  const requests: RequestLine[] = [];
  const problems: LogLine[] = [];
  const add = <T>(lines: T[], line: T) => {
    lines.unshift(line);
    lines.length = Math.min(lines.length, MOST_LINES);
  };
  feed.subscribe((event) => {
    if (event.type === "request" && !OWN.test(event.line.path)) add(requests, event.line);
    if (event.type === "log" && ["warn", "error"].includes(event.line.level)) add(problems, event.line);
  });
  return { requests, problems };
}

/** Hides the console's own operations where it is switched off. The live view needs some of them all the same. */
function requireConsole({ features }: ApiDeps): RequestHandler {
  return (_request, response, next) => {
    if (!features.console && callerOf(response).scope.keys === "own") throw new ImgbatchError("NOT_FOUND");
    next();
  };
}

/** Accepts a code, or a key, in `Authorization: Bearer`. */
const authenticateSignIn = authenticateBy(async ({ stores, clock, secrets }, request) => {
  const credential = bearerToken(request);
  const ofCode = credential === null ? null : await secrets.codes.take(credential);
  if (ofCode) return activeKey(stores.read, ofCode.keyId, clock.nowMs());
  try {
    return await authenticateKey(stores.read, credential, clock.nowMs());
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "INVALID_API_KEY") throw error;
    const message = "This code or key is not known here. A code works once, within 10 minutes.";
    throw new ImgbatchError("INVALID_API_KEY", message);
  }
});

async function isSession({ secrets }: Pick<ApiDeps, "secrets">, request: Request): Promise<boolean> {
  return (await secrets.sessions.find(bearerToken(request) ?? "")) !== null;
}

const usesConsole = [requireConsole];
const off: readonly ServiceErrorCode[] = ["NOT_FOUND"];

/** Signing in to the web console. */
const signingIn: Surface = {
  tag: "console",
  vendor: null,
  prefix: PATHS.consoleSessions,
  operations: [
    {
      id: "signIn",
      method: "post",
      path: PATHS.consoleSessions,
      summary: "Begin a session of the web console, with a code or a key",
      answers: { 200: { description: "The session.", schema: "Session" } },
      errors: off,
      guards: usesConsole,
      handler:
        ({ secrets }) =>
        async (_request, response) => {
          const { secret: token, expiresAtMs } = await secrets.sessions.issue({
            keyId: callerOf(response).key.id,
          });
          const view: ConsoleBody<"Session"> = {
            object: "console.session",
            token,
            expires_at: toSeconds(expiresAtMs),
          };
          response.setHeader("Cache-Control", "no-store");
          response.json(view);
        },
    },
  ],
  credential: { schemes: ["signInCode", "apiKey"], authenticate: authenticateSignIn, errors: bearerErrors },
};

/** Operations of the web console for a person who is signed in, and for the command that makes a code. */
const signedIn: Surface = {
  tag: "console",
  vendor: null,
  prefix: PATHS.console,
  operations: [
    {
      id: "makeSignInCode",
      method: "post",
      path: PATHS.consoleCodes,
      summary: "A code that begins a session of the web console, once, within 10 minutes",
      answers: { 200: { description: "The code.", schema: "SignInCode" } },
      errors: off,
      guards: usesConsole,
      handler: (deps) => async (request, response) => {
        if (await isSession(deps, request)) {
          throw new ImgbatchError("INVALID_API_KEY", "A session makes no codes: send the key itself.");
        }
        const { secret: code, expiresAtMs } = await deps.secrets.codes.issue({
          keyId: callerOf(response).key.id,
        });
        const view: ConsoleBody<"SignInCode"> = {
          object: "console.code",
          code,
          expires_at: toSeconds(expiresAtMs),
        };
        response.setHeader("Cache-Control", "no-store");
        response.json(view);
      },
    },
    {
      id: "getService",
      method: "get",
      path: PATHS.consoleService,
      summary:
        "Providers, workers, problems, queue, disk and the requests of all keys, for the key of `credentials.json`",
      answers: { 200: { description: "The service.", schema: "ServiceOverview" } },
      errors: [...off, "OWNER_ONLY"],
      guards: [...usesConsole, requireOwner],
      handler: overview,
    },
    // Without the console, too: the live view of `serve` uses them.
    {
      id: "pauseWorkers",
      method: "post",
      path: PATHS.consolePause,
      summary: "Let the workers begin no more images, for the key of `credentials.json`",
      answers: { 204: { description: "The workers finish what they have begun." } },
      errors: ["OWNER_ONLY"],
      guards: [requireOwner],
      handler: setPaused(true),
    },
    {
      id: "resumeWorkers",
      method: "delete",
      path: PATHS.consolePause,
      summary: "Let paused workers go on, for the key of `credentials.json`",
      answers: { 204: { description: "The workers go on." } },
      errors: ["OWNER_ONLY"],
      guards: [requireOwner],
      handler: setPaused(false),
    },
    // Without the console, too: `imgbatch providers` uses them.
    {
      id: "listProviders",
      method: "get",
      path: PATHS.consoleProviders,
      summary: "The providers of this process with their troubles, for the key of `credentials.json`",
      answers: { 200: { description: "The providers.", schema: "ServiceProviderList" } },
      errors: ["OWNER_ONLY"],
      guards: [requireOwner],
      handler: (deps) => async (_request, response) => {
        const view: ConsoleBody<"ServiceProviderList"> = {
          object: "list",
          data: await providersOf(deps),
          has_more: false,
          next_cursor: null,
        };
        response.json(view);
      },
    },
    {
      id: "resumeProvider",
      method: "post",
      path: PATHS.consoleResume,
      summary:
        "Forget the troubles of a provider, so that it is asked at once, for the key of `credentials.json`",
      parameters: ["ProviderName"],
      answers: { 204: { description: "It is asked again." } },
      errors: ["OWNER_ONLY", "NOT_FOUND"],
      guards: [requireOwner],
      handler: (deps) => (request, response) => {
        const name = String(request.params.provider);
        if (!deps.resumeProvider(name))
          throw new ImgbatchError("NOT_FOUND", "No such provider is configured.");
        response.status(204).end();
      },
    },
    {
      id: "signOut",
      method: "delete",
      path: PATHS.consoleSession,
      summary: "End the session whose token comes with the request",
      answers: { 204: { description: "It has ended." } },
      errors: off,
      guards: usesConsole,
      handler:
        ({ secrets }) =>
        async (request, response) => {
          await secrets.sessions.end(bearerToken(request) ?? "");
          response.status(204).end();
        },
    },
  ],
  credential: { schemes: ["apiKey"], authenticate, errors: bearerErrors },
};

/** The web console's own operations. Everything else that it shows comes from the other surfaces. */
export const consoleApis: readonly Surface[] = [signingIn, signedIn];
