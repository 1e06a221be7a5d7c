import { loadConfig } from "../../config/load.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import { providerObject, stateOf } from "../../contract/console-api.ts";
import { EXIT_CODES } from "../../contract/errors.ts";
import { reasonText, saidLines } from "../../contract/waiting.ts";
import { readEnvironment } from "../../environment.ts";
import { FREE_DRAWINGS, formatUsd } from "../../kernel/money.ts";
import {
  type CallSums,
  openProviderStatus,
  type Probe,
  type ProviderReport,
  type ProviderTrouble,
  splitTroubles,
} from "../../service/provider-status.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { configChoice, storageOf } from "../connect/service-config.ts";
import { type ModelTrouble, modelTroubles } from "../model-check.ts";
import * as option from "../options.ts";
import { type Column, tableLines } from "../output/table.ts";
import { costDifference, formatMoment } from "./admin-data.ts";
import { exitOfTrouble, findRunningProviders, worstExitCode } from "./doctor.ts";
import { storageOptions, upstreamOption } from "./shared-options.ts";

const options = {
  probe: option.flag({
    flags: "--probe",
    description: "ask each upstream with a request that costs nothing; one that works is used again at once",
  }),
  ...storageOptions,
  upstream: upstreamOption,
};

export const command = defineCommand({
  options,
  examples: ["imgbatch providers", "imgbatch providers --probe", "imgbatch providers --json"],
  notes: [
    "Works on the data directory (--data), also while a service runs on it. Use the configuration of that service.",
  ],
  exits: ["auth", "money", "temporary", "saving"],
  run,
});

/** `imgbatch providers`: the state of each configured provider, and what it was asked. Sends nothing without `--probe`. */
async function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { cwd, global, options, output, signal } = context;
  const config = loadConfig(configChoice(context));
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const storage = storageOf(context, config);
  output.detail(
    storage.database.kind === "postgres"
      ? `database: ${storage.database.name}`
      : `data directory: ${directory}`,
  );
  const running = await findRunningProviders(config, directory, context, (theirs) =>
    output.warn(
      `the service that runs on ${directory} has other providers, ${theirs}: use its --config or --upstream`,
    ),
  );
  const status = await openProviderStatus({ config, directory, storage, running });
  try {
    const probes = options.probe ? await status.probe(signal) : null;
    const reports = await status.report();
    const troubles = new Map<string, ModelTrouble[]>();
    for (const entry of config.providers)
      if (probes?.get(entry.name)?.isOk) troubles.set(entry.name, await modelTroubles(config, entry, signal));
    return {
      exitCode: probes ? exitCodeOf([...probes.values()]) : EXIT_CODES.ok.code,
      json: {
        providers: reports.map((report) =>
          providerView(report, probes?.get(report.name), troubles.get(report.name)),
        ),
      },
      lines: tableOf(reports, probes, troubles),
    };
  } finally {
    await status.close();
  }
}

/** The exit of the worst probe that failed. */
function exitCodeOf(probes: readonly Probe[]): number {
  return worstExitCode(probes.flatMap((probe) => (probe.isOk ? [] : { exit: exitOfTrouble(probe.trouble) })));
}

/** A provider as `--json` prints it. */
function providerView(
  report: ProviderReport,
  probe: Probe | undefined,
  troubles: readonly ModelTrouble[] = [],
): object {
  const missing = troubles.flatMap(({ isOffered, model }) => (isOffered ? [] : [model]));
  return {
    ...providerObject({ ...report, ...splitTroubles(report) }),
    ...(probe && {
      probe: {
        ok: probe.isOk,
        error: probe.isOk ? null : probe.message,
        ...(missing.length > 0 && { models_missing: missing }),
      },
    }),
  };
}

/** A line of the table: a provider, or below it a model with a trouble of its own. */
interface Row {
  name: string;
  trouble: ProviderTrouble | undefined;
  report?: ProviderReport;
  probe?: Probe | undefined;
  /** A line of the upstream's own words, which stands alone. */
  said?: string;
}

/** Returns the lines of the table. Counts and money are written as `last hour/all`. */
function tableOf(
  reports: readonly ProviderReport[],
  probes: ReadonlyMap<string, Probe> | null,
  troubles: ReadonlyMap<string, readonly ModelTrouble[]>,
): string[] {
  const rows = reports.flatMap((report): Row[] => {
    const { ofAll, ofModels } = splitTroubles(report);
    return [
      { name: report.name, trouble: ofAll, report, probe: probes?.get(report.name) },
      ...saidRows(ofAll),
      ...ofModels.flatMap((trouble) => [{ name: `  ${trouble.model}`, trouble }, ...saidRows(trouble)]),
      ...(troubles.get(report.name) ?? []).map(({ model, message, successor }) => ({
        name: `  ${model}`,
        trouble: undefined,
        said: `${message.replace(`${model} `, "")}${successor === null ? "" : `; in its place: ${successor}`}`,
      })),
    ];
  });
  const jobs = reports.some((report) => report.jobs !== null) ? [JOBS] : [];
  return tableLines([...COLUMNS, ...jobs, ...(probes ? [PROBE] : []), REASON], rows);
}

const saidRows = (trouble: ProviderTrouble | undefined): Row[] =>
  saidLines(trouble?.said).map((said) => ({ name: "", trouble: undefined, said }));

const moment = (ms: number | null | undefined) => (ms == null ? "" : formatMoment(ms));
const counted = (title: string, of: (sums: CallSums) => string): Column<Row> => ({
  title,
  align: "right",
  of: ({ report }) => (report ? `${of(report.lastHour)}/${of(report.total)}` : ""),
});
const COLUMNS: readonly Column<Row>[] = [
  { title: "provider", of: ({ name }) => name },
  { title: "type", of: ({ report }) => report?.type ?? "" },
  { title: "state", of: ({ trouble, said }) => (said === undefined ? stateOf(trouble) : "") },
  { title: "until", of: ({ trouble }) => moment(trouble?.untilMs) },
  { title: "last success", of: ({ report }) => moment(report?.total.lastSuccessMs) },
  counted("requests 1h/all", ({ requests }) => String(requests)),
  counted("images", ({ images }) => String(images)),
  counted("errors", ({ errors }) => String(errors)),
  {
    title: "billed",
    align: "right",
    of: ({ report }) => {
      if (!report || report.isPlay) return report ? FREE_DRAWINGS : "";
      return `${formatUsd(report.lastHour.billedMicroUsd)}/${formatUsd(report.total.billedMicroUsd)}`;
    },
  },
  // Most upstreams report no costs.
  {
    title: "upstream cost",
    align: "right",
    of: ({ report }) => {
      if (!report) return "";
      const [hour, all] = [report.lastHour, report.total].map(({ costMicroUsd }) =>
        costMicroUsd === 0 ? "-" : formatUsd(costMicroUsd),
      );
      const { billedMicroUsd, unreportedMicroUsd, costMicroUsd } = report.total;
      const difference = costDifference(billedMicroUsd - unreportedMicroUsd, costMicroUsd);
      return `${hour}/${all}${report.isPlay ? "" : difference}`;
    },
  },
];
const JOBS: Column<Row> = {
  title: "jobs",
  of: ({ report }) => (report?.jobs ? `${report.jobs.atWork} at work` : ""),
};
const PROBE: Column<Row> = {
  title: "probe",
  of: ({ probe }) => (probe ? (probe.isOk ? "ok" : `failed: ${probe.message}`) : ""),
};
const REASON: Column<Row> = {
  title: "reason",
  of: ({ trouble, said = "" }) =>
    trouble ? reasonText(trouble.provider, trouble.message, trouble.failures) : said,
};
