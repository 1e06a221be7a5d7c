import { type Cost, costText, microsToNumber } from "../../kernel/money.ts";
import { escapeAttribute, escapeMarkup, type ReportImage, type RunReport } from "./run-report.ts";

/**
 * Formats a run as JUnit XML: one suite with a test case for each image, so that CI systems list each failure with its
 * reason. It has every attribute and element that strict readers of the format require.
 */
export function toJunit(report: RunReport): string {
  const { images, failedCount, title } = report;
  const seconds = Math.max(0, Date.parse(report.endedAt) - Date.parse(report.startedAt)) / 1000;
  const counts = { tests: images.length, failures: failedCount, errors: 0, time: seconds.toFixed(3) };
  const suite = {
    id: 0,
    package: "imgbatch",
    name: title,
    ...counts,
    skipped: 0,
    timestamp: report.endedAt.slice(0, 19),
    hostname: "localhost",
  };
  const properties = propertiesOf(report).map(
    ([name, value]) => `      <property${attributes({ name, value })}/>`,
  );
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites${attributes({ name: "imgbatch", ...counts })}>`,
    `  <testsuite${attributes(suite)}>`,
    "    <properties>",
    ...properties,
    "    </properties>",
    ...images.map((image) => testCase(image, report)),
    "    <system-out/>",
    "    <system-err/>",
    "  </testsuite>",
    "</testsuites>",
    "",
  ].join("\n");
}

function propertiesOf({ model, batches, cost, directory }: RunReport): [string, string][] {
  return [
    ["directory", directory],
    ...(model === null ? [] : [["model", model] as [string, string]]),
    ...batches.map(({ id }): [string, string] => ["batch_id", id]),
    ...(cost === null ? [] : [costOf(cost)]),
  ];
}

function costOf(cost: Cost): [string, string] {
  return cost.isPlay ? ["cost", costText(cost)] : ["cost_usd", String(microsToNumber(cost.micros))];
}

function testCase(
  { id, prompt, files, notes, error }: ReportImage,
  { title, directoryFromRoot }: RunReport,
): string {
  const head = `    <testcase${attributes({ name: id, classname: title, time: "0" })}>`;
  const said = [...(prompt === null ? [] : [prompt]), ...notes];
  const body =
    error === null
      ? // The second kind of line makes GitLab show the picture beside the test.
        element("system-out", [
          ...said,
          ...files.map(({ path }) => `[[ATTACHMENT|${directoryFromRoot.replace(/[\\/]+$/, "")}/${path}]]`),
        ])
      : element("failure", [`${error.code}: ${error.message}`, ...said], {
          message: `${error.code}: ${error.message}`,
          type: error.code,
        });
  return `${head}\n      ${body}\n    </testcase>`;
}

function element(
  name: string,
  lines: readonly string[],
  values: Readonly<Record<string, string>> = {},
): string {
  return `<${name}${attributes(values)}>${escapeMarkup(lines.join("\n"))}</${name}>`;
}

function attributes(values: Readonly<Record<string, string | number>>): string {
  return Object.entries(values)
    .map(([name, value]) => ` ${name}="${escapeAttribute(String(value))}"`)
    .join("");
}
