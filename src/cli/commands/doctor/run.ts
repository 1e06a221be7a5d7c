import { loadConfig } from "../../../config/load.ts";
import { dataDirectoryOf } from "../../../config/paths.ts";
import { UPSTREAM_NAMES, type UpstreamName } from "../../../config/presets.ts";
import type { Config } from "../../../config/schema.ts";
import type { StoragePlaces } from "../../../config/storage-places.ts";
import { errorEntry, ImgbatchError } from "../../../contract/errors.ts";
import { readEnvironment } from "../../../environment.ts";
import { counted } from "../../../kernel/text.ts";
import type { CommandContext, RunCommand } from "../../command-line/command-context.ts";
import { choiceOption } from "../../command-line/option-values.ts";
import { agreeTo } from "../../service/agreed-addresses.ts";
import { checkedUrl, upstreamElsewhere } from "../../service/connect.ts";
import { createServiceLocator, type FoundService } from "../../service/locate-service.ts";
import { storageOf } from "../../service/storage-of.ts";
import { requireNamedAddresses } from "../../service/upstream-keys.ts";
import { checkDirectory, checkOwner, checkSecrecy } from "./check-directory.ts";
import { checkNativeParts, checkNode } from "./check-program.ts";
import { checkService } from "./check-service.ts";
import { checkStorage } from "./check-storage.ts";
import { checkUpstreams } from "./check-upstreams.ts";
import { type Finding, fail, ok, warn, worstExitCode } from "./finding.ts";

/** `imgbatch doctor`: checks everything that a run needs, and advises how to solve each problem. */
export const run: RunCommand = async (context) => {
  const findings = await examine(context);
  const exitCode = worstExitCode(findings);
  const bad = findings.filter(({ state }) => state === "fail").length;
  context.output.note(bad === 0 ? "No problems found" : counted(bad, "problem"));
  return { exitCode, json: { findings: findings.map(toJson) }, lines: findings.flatMap(linesOf) };
};

async function examine(context: CommandContext): Promise<Finding[]> {
  const { global, options, cwd, signal } = context;
  const environment = readEnvironment();
  const upstream = choiceOption(options, "upstream", UPSTREAM_NAMES) ?? null;
  const { config, finding } = readConfig(context, upstream);
  const named = global.baseUrl ?? environment.baseUrl ?? config?.baseUrl ?? null;
  const isEmbedded = named === null;
  if (upstream !== null && !isEmbedded) throw upstreamElsewhere(checkedUrl(named));
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
  if (!isEmbedded) return [...findings, ...(await checkNamed(context, config))];
  findings.push(...(await checkDirectory("data", data)), ...(await checkSecrecy(data)));
  if (global.config === undefined) findings.push(...(await checkAddresses(config)));
  // Without the native modules or with a damaged directory nothing can be known of upstreams.
  if (worstExitCode(findings) === 0)
    findings.push(...(await checkUpstreams({ config, directory: data, storage, signal, where: global })));
  // Its processes are found by their addresses, which only their callers know.
  if (storage.database.kind === "postgres") return findings;
  const locate = await createServiceLocator(context);
  const service = await locate(signal);
  const answers = service === null ? [] : await checkService(service, signal);
  const isAnswering = answers.some(({ check, state }) => check === "service" && state === "ok");
  const owner = await checkOwner(data, isAnswering);
  if (isAnswering || owner.length > 0) return [...findings, ...(isAnswering ? answers : []), ...owner];
  // The embedded service cannot start if its data directory is not writable.
  if (findings.some(({ check, state }) => check === "data" && state === "fail")) return findings;
  return [...findings, ok("service", "the embedded one; it starts with the command that needs it")];
}

/** Stores the user's agreement if `--base-url` names the address of the configuration file. */
async function agree(
  { global }: CommandContext,
  config: Config,
  { baseUrl }: FoundService,
): Promise<Finding[]> {
  if (global.baseUrl === undefined || global.config !== undefined || config.baseUrl === null) return [];
  if (checkedUrl(config.baseUrl) !== baseUrl) return [];
  try {
    return [ok("address", `keys may be sent to ${baseUrl}: your agreement is in ${await agreeTo(baseUrl)}`)];
  } catch (error) {
    const message = `the agreement to ${baseUrl} cannot be stored (${(error as NodeJS.ErrnoException).code})`;
    return [warn("address", message, "set IMGBATCH_BASE_URL instead")];
  }
}

/** Reports an upstream that gets no secret, since only the configuration file of the working directory names it. */
async function checkAddresses(config: Config): Promise<Finding[]> {
  try {
    await requireNamedAddresses(config);
    return [];
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    return [fail("upstream", errorEntry(error.code).exit, error.message, error.advice ?? "")];
  }
}

async function checkNamed(context: CommandContext, config: Config): Promise<Finding[]> {
  let service: FoundService | null;
  try {
    const locate = await createServiceLocator(context);
    service = await locate(context.signal);
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    const { exit } = errorEntry(error.code);
    const isKey = exit === "auth";
    const usual = isKey ? "set IMGBATCH_API_KEY, or use --api-key-file" : "write it as the message says";
    return [fail(isKey ? "key" : "service", exit, error.message, error.advice ?? usual)];
  }
  if (service === null) return [];
  return [...(await agree(context, config, service)), ...(await checkService(service, context.signal))];
}

function readConfig(
  { global, cwd }: CommandContext,
  upstream: UpstreamName | null,
): { config: Config | null; finding: Finding } {
  try {
    return { config: loadConfig({ file: global.config, cwd, upstream }), finding: ok("config", "is right") };
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    const advice = "fix it; `imgbatch schema config` prints every key";
    return { config: null, finding: fail("config", "usage", error.message, advice) };
  }
}

function readStorage(
  context: CommandContext,
  config: Config,
): { storage: StoragePlaces | null; finding: Finding[] } {
  try {
    return { storage: storageOf(context, config), finding: [] };
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    const { exit } = errorEntry(error.code);
    const advice = error.advice ?? "write it as the message says";
    return { storage: null, finding: [fail("storage", exit, error.message, advice)] };
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
