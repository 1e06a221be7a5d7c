import { providerObject, stateOf } from "../../../contract/console-api.ts";
import { reasonText, saidLines } from "../../../contract/waiting.ts";
import { FREE_DRAWINGS, formatUsd } from "../../../kernel/money.ts";
import {
  type CallSums,
  type Probe,
  type ProviderReport,
  type ProviderTrouble,
  splitTroubles,
} from "../../../service/provider-status.ts";
import { type Column, tableLines } from "../../terminal/table.ts";
import { formatMoment } from "../admin/dates.ts";

/** A provider in the document of `--json`. */
export function providerView(report: ProviderReport, probe: Probe | undefined): object {
  return {
    ...providerObject({ ...report, ...splitTroubles(report) }),
    ...(probe && { probe: { ok: probe.isOk, error: probe.isOk ? null : probe.message } }),
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
export function tableOf(
  reports: readonly ProviderReport[],
  probes: ReadonlyMap<string, Probe> | null,
): string[] {
  const rows = reports.flatMap((report): Row[] => {
    const { ofAll, ofModels } = splitTroubles(report);
    return [
      { name: report.name, trouble: ofAll, report, probe: probes?.get(report.name) },
      ...saidRows(ofAll),
      ...ofModels.flatMap((trouble) => [{ name: `  ${trouble.model}`, trouble }, ...saidRows(trouble)]),
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
  counted("upstream cost", ({ costMicroUsd }) => (costMicroUsd === 0 ? "-" : formatUsd(costMicroUsd))),
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
