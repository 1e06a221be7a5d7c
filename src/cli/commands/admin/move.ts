import { loadUnlessDefault } from "../../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../../config/paths.ts";
import { readEnvironment } from "../../../environment.ts";
import { counted, formatBytes } from "../../../kernel/text.ts";
import { moveStorage } from "../../../service/storage/move.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { configChoice } from "../../service/config-choice.ts";
import { storageOf } from "../../service/storage-of.ts";
import { done } from "./with-admin.ts";

/** `imgbatch admin move`: copies a data directory to PostgreSQL and S3. No service may run on it meanwhile. */
export const run: RunCommand = async (context) => {
  const { global, cwd, output, clock } = context;
  const config = await loadUnlessDefault(configChoice(context));
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const sinceMs = clock.nowMs();
  const onProgress = (text: string) => output.progress(text, sinceMs);
  const to = storageOf(context, config);
  const { problems, ...report } = await moveStorage({ directory, to, clock, onProgress }).finally(() =>
    output.settle(),
  );
  const { database, blobs, tables, rows, files, bytes } = report;
  for (const problem of problems) output.warn(`broken before, and moved as it is: ${problem}`);
  const result = done({ data: directory, ...report, problems }, [
    ...(database === null
      ? []
      : [`${counted(rows, "row")} of ${counted(tables, "table")} copied to ${database}`]),
    `${counted(files, "file")} (${formatBytes(bytes)}) copied to ${blobs}`,
    `the old data stays in ${directory}, and no service uses it`,
  ]);
  const places = { ...(database === null ? {} : { database }), blobs };
  return { ...result, next: `write into the configuration: "storage": ${JSON.stringify(places)}` };
};
