import type { Config } from "../../../config/schema.ts";
import type { StoragePlaces } from "../../../config/storage-places.ts";
import { identityOf, secretVariables } from "../../../contract/data-directory.ts";
import { errorEntry, ImgbatchError } from "../../../contract/errors.ts";
import type { ProviderEntry } from "../../../contract/provider-entries.ts";
import { named, unnamed } from "../../../contract/waiting.ts";
import type { Probe, ProviderReport, ProviderStatus, Trouble } from "../../../service/provider-status.ts";
import { nextCommand, type Whereabouts } from "../../result/next-command.ts";
import { providersInWords } from "../../service/embedded.ts";
import { findRunning } from "../../service/running-service.ts";
import { exitOfTrouble, type Finding, fail, ok, warn } from "./finding.ts";

/**
 * Checks each configured upstream: whether its keys are set, whether it answers a request that costs nothing, and whether
 * it pauses. Drawings need nothing. While one upstream can be used, troubles of the others are warnings.
 */
export async function checkUpstreams({
  config,
  directory,
  storage,
  signal,
  where,
}: {
  config: Config;
  directory: string;
  storage: StoragePlaces;
  signal: AbortSignal;
  where: Whereabouts;
}): Promise<Finding[]> {
  if (config.providers.every(({ type }) => type === "procedural")) return [];
  // It needs the database library, which may not load on this system.
  const { openProviderStatus } = await import("../../../service/provider-status.ts");
  let status: ProviderStatus;
  try {
    const running = (await findRunning(directory).catch(() => null))?.providers ?? [];
    const isSame = providersInWords(running) === providersInWords(config.providers.map(identityOf));
    status = await openProviderStatus({ config, directory, storage, running: isSame ? running : [] });
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    const { exit } = errorEntry(error.code);
    return [
      fail("data", exit, error.message, error.advice ?? "put a backup in its place, or use another --data"),
    ];
  }
  try {
    const reports = await status.report();
    const probes = await status.ask(signal);
    const upstreams = config.providers.filter(({ type }) => type !== "procedural");
    const isAnyUsable = upstreams.some(({ name }) => isUsable(probes.get(name)));
    return upstreams.map((entry) => {
      const report = reports.find(({ name }) => name === entry.name);
      return findingOf(entry, report, probes.get(entry.name), { isAnyUsable, where });
    });
  } finally {
    await status.close();
  }
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
  if (!trouble) return ok("upstream", `${name} ${answers} (${type}, ${address})`);
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
