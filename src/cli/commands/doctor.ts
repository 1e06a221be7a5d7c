import { readFileSync } from "node:fs";
import { saving } from "../../client/file-errors.ts";
import { agreeTo, readConfig, requireAgreed } from "../../config/load.ts";
import { agreementsFile, dataDirectoryOf } from "../../config/paths.ts";
import { type Config, undercharging } from "../../config/schema.ts";
import type { StoragePlaces } from "../../config/storage-places.ts";
import { errorEntry, ImgbatchError } from "../../contract/errors.ts";
import { readEnvironment } from "../../environment.ts";
import { programName } from "../../kernel/command-line.ts";
import { packageFile } from "../../kernel/package-file.ts";
import { counted } from "../../kernel/text.ts";
import { loadNativeModule, NATIVE_MODULES, type NativeModule } from "../../service/native-modules.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { upstreamElsewhere } from "../connect/connect.ts";
import type { ReachableService } from "../connect/connection.ts";
import { findRunning } from "../connect/running-service.ts";
import { configChoice, storageOf } from "../connect/service-config.ts";
import { flagOption, textOption } from "../options.ts";
import { moduleAdvice } from "../output/finish.ts";
import {
  checkDirectory,
  checkOwner,
  checkSecrecy,
  checkService,
  checkStorage,
  checkUpstreams,
  type Finding,
  fail,
  failure,
  ok,
  warn,
  worstExitCode,
} from "./doctor-checks.ts";
import { storageOptions, upstreamOption } from "./shared-options.ts";

export const command: CommandDetails = {
  options: [
    ...storageOptions,
    upstreamOption,
    { flags: "--agree", description: "agree to imgbatch.config.json of this directory as it is now" },
  ],
  examples: ["imgbatch doctor", "imgbatch doctor --upstream google", "imgbatch doctor --json"],
  notes: [
    "A stranger may have written imgbatch.config.json of a directory: before a command uses it, you have to read it and to agree once. A changed file asks again. Presets, the names and concurrency of providers, and limits below the defaults need no consent; a file that --config names needs none either.",
  ],
  exits: ["auth", "money", "conflict", "temporary", "saving"],
  run,
};

/** `imgbatch doctor`: checks everything that a run needs, and advises how to solve each problem. */
async function run(context: CommandContext): Promise<CommandResult> {
  const findings = await examine(context);
  const exitCode = worstExitCode(findings);
  const bad = findings.filter(({ state }) => state === "fail").length;
  context.output.note(bad === 0 ? "No problems found" : counted(bad, "problem"));
  return { exitCode, json: { findings: findings.map(toJson) }, lines: findings.flatMap(linesOf) };
}

async function examine(context: CommandContext): Promise<Finding[]> {
  const { global, options, cwd } = context;
  const environment = readEnvironment();
  const upstream = textOption(options, "upstream") ?? null;
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
async function checkConfig(context: CommandContext): Promise<{ config: Config | null; finding: Finding }> {
  try {
    const agrees = flagOption(context.options, "agree");
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
