import { once } from "node:events";
import { rm } from "node:fs/promises";
import { resolve } from "node:path";
import { createServiceHttp } from "../../client/service-http.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import { ROLES } from "../../config/roles.ts";
import type { ReadyFile } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readEnvironment } from "../../environment.ts";
import { shellWord } from "../../kernel/command-line.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { writeFileDurably } from "../../kernel/files.ts";
import { isLoopback } from "../../kernel/loopback.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import { createLog, LOG_LEVELS } from "../../service/pino-log.ts";
import { type Service, startService } from "../../service/start-service.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { serviceAt } from "../connect/running-service.ts";
import {
  makeEphemeralDirectory,
  requireShared,
  serviceConfig,
  storageOf,
} from "../connect/service-config.ts";
import * as option from "../options.ts";
import { nextCommand, type Whereabouts } from "../output/next-step.ts";
import { mayColor, mayShowDashboard, paidRequestsNote } from "../terminal.ts";
import {
  addressOptions,
  logLevelOption,
  simulateOption,
  storageOptions,
  upstreamOption,
  vendorOption,
} from "./shared-options.ts";

const options = {
  ...addressOptions,
  role: option.choice({
    flags: "--role <role>",
    description: "all; api: take requests; worker: make images. The last two share a database and a bucket",
    default: "all",
    choices: ROLES,
  }),
  ...storageOptions,
  upstream: upstreamOption,
  vendor: vendorOption,
  ephemeral: option.flag({
    flags: "--ephemeral",
    description: "use a temporary data directory, removed at the end",
  }),
  readyFile: option.text({
    flags: "--ready-file <file>",
    description: "write the URL, process id and data directory to this file when the service is ready",
  }),
  simulate: simulateOption,
  isForTests: option.flag({
    flags: "--test",
    description:
      "let tests order faults and read the requests, at /imgbatch/test; not for a service that others use",
  }),
  noUi: option.flag({
    flags: "--no-ui",
    description: "print log lines instead of the live view, also on a terminal",
  }),
  graceMs: option.duration({
    flags: "--grace <time>",
    description: "how long running items may take after a stop",
    default: "10s",
  }),
  logLevel: logLevelOption(LOG_LEVELS, "info"),
};

export const command = defineCommand({
  options,
  examples: [
    "imgbatch serve",
    "imgbatch serve --port 0 --data ./data --ready-file ready.json",
    "imgbatch serve --role worker --database postgres://db/main --blobs s3://main",
  ],
  exits: ["auth", "conflict", "saving"],
  json: false,
  run,
});

const DEFAULT_GRACE_MS = 10_000;

/** `imgbatch serve`: runs the service until a signal stops it or its disk fails (`STORAGE_FAILED`). */
async function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { cwd, clock, global, options, output } = context;
  const config = serviceConfig(context, { mayLackKeys: true });
  const { role = "all", graceMs = DEFAULT_GRACE_MS, readyFile, ephemeral: isEphemeral } = options;
  const storage = storageOf(context, config);
  requireShared(role, storage);
  const address = {
    host: options.host ?? config.server.host,
    port: options.port ?? config.server.port,
  };
  const isLive = !options.noUi && mayShowDashboard(context);
  const level = options.logLevel ?? "info";
  const forPeople = Boolean(process.stderr.isTTY);
  const log = createLog({ level, forPeople, write: (line) => process.stderr.write(line) });
  if (!isLoopback(address.host)) {
    output.warn(
      `warning: ${address.host} can be reached from other machines, and this service speaks plain HTTP;`,
    );
    output.warn("warning: put a proxy with TLS in front of it, or others can read the API keys.");
  }
  const dataDirectory = isEphemeral
    ? await makeEphemeralDirectory("serve", clock.nowMs())
    : dataDirectoryOf(global.data, readEnvironment(), cwd);
  try {
    const { isForTests } = options;
    const start = {
      config,
      dataDirectory,
      storage,
      role,
      address,
      workers: true,
      isForTests,
      isThrowaway: isEphemeral,
    };
    const service = await startService({ ...start, log: isLive ? "feed" : log }).catch(async (error) => {
      throw await explainPortInUse(error, address, cwd);
    });
    try {
      await announce(service, { cwd, dataDirectory, readyFile });
      const stop = AbortSignal.any([context.signal, service.failed]);
      if (isLive) await showService(context, service, dataDirectory, stop);
      else if (!stop.aborted) await once(stop, "abort");
      if (isLive) sayStopping(service, graceMs);
      const { paid } = service.queue();
      const how = context.signal.aborted ? "a second Ctrl-C" : "Ctrl-C";
      // The live view took the first Ctrl-C as a key. The next one must end the process at once.
      if (!context.signal.aborted) process.emit("SIGINT", "SIGINT");
      const note = service.failed.aborted ? null : paidRequestsNote(paid, how);
      if (note !== null) output.note(note);
      log.info("stopping", { grace_ms: service.failed.aborted ? 0 : graceMs });
    } finally {
      // After an error above, too, the service must stop. SIGTERM comes from a supervisor, whose proxy must see that the
      // service stops before it does. A person who presses Ctrl-C waits for it.
      const { reason } = context.signal;
      const isTerminated = reason instanceof ImgbatchError && reason.code === "TERMINATED";
      await service.close(service.failed.aborted ? 0 : graceMs, isTerminated);
    }
    if (readyFile !== undefined) await rm(resolve(cwd, readyFile), { force: true });
    service.failed.throwIfAborted();
  } finally {
    if (isEphemeral) await rm(dataDirectory, { recursive: true, force: true });
  }
  return { json: null };
}

/** Returns how a command finds this service from a terminal without the variables of this one. */
function whereabouts(data: string, cwd: string): Whereabouts {
  const usual = dataDirectoryOf(undefined, { ...readEnvironment(), dataDirectory: undefined }, cwd);
  return data === usual ? {} : { data };
}

async function showService(
  context: CommandContext,
  service: Service,
  dataDirectory: string,
  signal: AbortSignal,
): Promise<void> {
  const { loadView, global, clock, cwd } = context;
  const [{ showDashboard }, { createDashboardSource }, { baseUrl, apiKey, ...facts }] = await Promise.all([
    loadView(),
    import("../dashboard-source.ts"),
    service.openLiveView(),
  ]);
  const { stdin, stdout } = process;
  const submitCommand = nextCommand(whereabouts(dataDirectory, cwd), "submit", "prompts.jsonl");
  const source = createDashboardSource({
    http: createServiceHttp({ baseUrl, apiKey, clock, random: Math.random }),
    url: service.url,
    clock,
    own: {
      facts: { ...facts, dataDirectory, submitCommand },
      signInLink: service.signInLink,
      lines: (tell) =>
        service.feed.subscribe((event) => {
          if (event.type === "request" || event.type === "log") tell(event);
        }),
    },
    directoryOf: () => dataDirectory,
    signal,
  });
  await showDashboard(source, { stdin, stdout, signal, hasColor: mayColor(stdout, global.color) });
}

function sayStopping(service: Service, graceMs: number): void {
  const { running, paid } = service.queue();
  // Those that are paid are not stopped after the grace.
  const free = running - paid;
  if (free === 0) return;
  const what = free === 1 ? "1 image is being made" : `${free} images are being made`;
  const rest = "unfinished work continues at the next start";
  process.stderr.write(`stopping: ${what}, for at most ${formatDuration(graceMs)}; ${rest}\n`);
}

async function announce(
  service: Service,
  where: { cwd: string; dataDirectory: string; readyFile: string | undefined },
): Promise<void> {
  const { url, credentialsFile } = service;
  const credentials = credentialsFile === null ? {} : { credentials: credentialsFile };
  const ready: ReadyFile = { url, pid: process.pid, data: where.dataDirectory, ...credentials };
  const line = process.stdout.isTTY
    ? `imgbatch is ready at ${url} (data: ${where.dataDirectory})`
    : JSON.stringify({ event: "ready", url });
  if (where.readyFile !== undefined) {
    const path = resolve(where.cwd, where.readyFile);
    await writeFileDurably(path, `${JSON.stringify(ready)}\n`).catch((cause: unknown) => {
      const message = `--ready-file: ${path} cannot be written (${systemCodeOf(cause)}).`;
      throw new ImgbatchError("USAGE", message, { cause });
    });
  }
  process.stdout.write(`${line}\n`);
  const link = process.stdout.isTTY ? await service.signInLink?.() : undefined;
  if (link !== undefined) process.stdout.write(`web console, for 10 minutes and once: ${link}\n`);
}

/**
 * Returns the error for a port that another process uses. If a service of this program uses it, the message says so,
 * with its process and data directory where they are known. Returns any other error unchanged.
 */
async function explainPortInUse(
  thrown: unknown,
  address: { host: string; port: number },
  cwd: string,
): Promise<unknown> {
  if (!(thrown instanceof ImgbatchError) || thrown.code !== "ADDRESS_IN_USE") return thrown;
  const environment = readEnvironment();
  const usual = dataDirectoryOf(undefined, { ...environment, dataDirectory: undefined }, cwd);
  const owner = await serviceAt(address, [dataDirectoryOf(undefined, environment, cwd), usual]);
  if (owner === null) return thrown;
  const where = `${address.host}:${address.port}`;
  const [message, use] =
    owner === "unknown"
      ? [
          `${where} is taken by another imgbatch service, whose data directory is unknown here.`,
          "use that service",
        ]
      : [
          `${where} is taken by the imgbatch service with the data directory ${owner.directory} (process ${owner.pid}).`,
          `use that service (--data ${shellWord(owner.directory)})`,
        ];
  const advice = `${use}, stop it, or run the same command with --port 0, which takes a free port`;
  return new ImgbatchError("ADDRESS_IN_USE", message, { advice, cause: thrown });
}
