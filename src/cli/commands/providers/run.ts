import { loadConfig } from "../../../config/load.ts";
import { dataDirectoryOf } from "../../../config/paths.ts";
import type { Config } from "../../../config/schema.ts";
import { identityOf, type ProviderIdentity } from "../../../contract/data-directory.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { readEnvironment } from "../../../environment.ts";
import { openProviderStatus, type Probe } from "../../../service/provider-status.ts";
import type { CommandContext, RunCommand } from "../../command-line/command-context.ts";
import { flagOption } from "../../command-line/option-values.ts";
import { configChoice } from "../../service/config-choice.ts";
import { providersInWords } from "../../service/embedded.ts";
import { findRunning } from "../../service/running-service.ts";
import { storageOf } from "../../service/storage-of.ts";
import { exitOfTrouble, worstExitCode } from "../doctor/finding.ts";
import { providerView, tableOf } from "./provider-view.ts";

/** `imgbatch providers`: the state of each configured provider, and what it was asked. Sends nothing without `--probe`. */
export const run: RunCommand = async (context) => {
  const { cwd, global, options, output, signal } = context;
  const config = loadConfig(configChoice(context));
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const storage = storageOf(context, config);
  output.detail(
    storage.database.kind === "postgres"
      ? `database: ${storage.database.name}`
      : `data directory: ${directory}`,
  );
  const running = await runningProviders(context, config, directory);
  const status = await openProviderStatus({ config, directory, storage, running });
  try {
    const probes = flagOption(options, "probe") ? await status.probe(signal) : null;
    const reports = await status.report();
    return {
      exitCode: probes ? exitCodeOf([...probes.values()]) : EXIT_CODES.ok.code,
      json: { providers: reports.map((report) => providerView(report, probes?.get(report.name))) },
      lines: tableOf(reports, probes),
    };
  } finally {
    await status.close();
  }
};

/** The exit of the worst probe that failed. */
function exitCodeOf(probes: readonly Probe[]): number {
  return worstExitCode(probes.flatMap((probe) => (probe.isOk ? [] : { exit: exitOfTrouble(probe.trouble) })));
}

/** Returns the providers of the running service; none, with a warning, if they are not the configured ones. */
async function runningProviders(
  { output }: CommandContext,
  { providers }: Config,
  directory: string,
): Promise<readonly ProviderIdentity[]> {
  const running = (await findRunning(directory).catch(() => null))?.providers ?? [];
  const theirs = providersInWords(running);
  if (running.length === 0 || theirs === providersInWords(providers.map(identityOf))) return running;
  output.warn(
    `the service that runs on ${directory} has other providers, ${theirs}: use its --config or --upstream`,
  );
  return [];
}
