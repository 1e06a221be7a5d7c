import type { EntryOf } from "../../contract/provider-entries.ts";
import type { JobItem } from "../../domain/ports/image-provider.ts";
import { type AdapterDeps, refuseStoredReferences } from "../upstream/adapter.ts";
import { ambiguous } from "../upstream/classify.ts";
import { modelPath, NATIVE_TAKES } from "../upstream/generate-content/native-api.ts";
import { generateContentBody } from "../upstream/generate-content/request.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import type { JobAdapter } from "../upstream/jobs/job-provider.ts";
import { resultLines } from "../upstream/jobs/result-lines.ts";
import { listAt, textAt } from "../upstream/read-json.ts";
import { jsonBody, jsonLinesBody } from "../upstream/request-body.ts";
import { outputFilesOf, readOperation } from "./operation.ts";
import { readResult } from "./result.ts";
import { uploadFile } from "./upload.ts";

const PAGE = 50;

/** Talks to the vendor's files and batch jobs, at half the price, or to another imgbatch. */
export function createNativeBatchAdapter(entry: EntryOf<"native-batch">, deps: AdapterDeps): JobAdapter {
  const { name, apiVersion, keyHeader, apiKeyEnv } = entry;
  const http = new UpstreamHttp(entry, deps);
  const key = apiKeyEnv === null ? null : deps.secret(apiKeyEnv);
  const headers = key === null ? {} : { [keyHeader]: key };
  const at = (resource: string) => `/${apiVersion}/${resource.split("/").map(encodeURIComponent).join("/")}`;
  const operation = (resource: string, signal: AbortSignal) =>
    http.json({ method: "GET", path: at(resource), headers, isOperation: true }, signal);
  const lineOf = ({ key, request }: JobItem) => {
    refuseStoredReferences(request);
    return { key, request: generateContentBody(request) };
  };
  return {
    address: `${http.baseUrl}/${apiVersion}`,
    takes: NATIVE_TAKES,
    splitsReferences: false,
    lineBytes: async (item) => await jsonLinesBody([lineOf(item)]).length(),
    upload: (jobId, items, signal) =>
      uploadFile(
        { http, apiVersion, headers, clock: deps.clock },
        { label: jobId, body: jsonLinesBody(items.map(lineOf)) },
        signal,
      ),
    async create({ jobId, model, input }, signal) {
      const path = `/${apiVersion}/${modelPath(model)}:batchGenerateContent`;
      const body = jsonBody({ batch: { displayName: jobId, inputConfig: { fileName: input } } });
      const answer = await http.json({ method: "POST", path, headers, body, isOperation: true }, signal);
      const job = readOperation(name, answer);
      if (job === null) throw ambiguous(name, "HTTP 200 without the name of a job", 200);
      return job.name;
    },
    async page(mark, signal) {
      const query = new URLSearchParams({ pageSize: String(PAGE), ...(mark && { pageToken: mark }) });
      const path = `/${apiVersion}/batches?${query}`;
      const page = await http.json({ method: "GET", path, headers }, signal);
      const jobs = listAt(page, "operations").flatMap((each) => readOperation(name, each) ?? []);
      return { jobs, next: textAt(page, "nextPageToken") ?? textAt(page, "next_page_token") };
    },
    async poll(resource, signal) {
      const job = readOperation(name, await operation(resource, signal));
      if (job === null) throw ambiguous(name, "HTTP 200 that shows no job", 200);
      return job;
    },
    async outputs(resource, signal) {
      const shown = await operation(resource, signal);
      return readOperation(name, shown)?.state === "running" ? null : outputFilesOf(shown);
    },
    async *read(file, signal) {
      const path = `${at(file)}:download?alt=media`;
      for await (const line of resultLines(http, { path, headers }, deps.clock, signal))
        yield "value" in line ? readResult(name, line, deps.clock.nowMs()) : line;
    },
    async cancel(resource, signal) {
      const request = { method: "POST", path: `${at(resource)}:cancel`, headers } as const;
      await http.json({ ...request, body: jsonBody({}), mayBeEmpty: true }, signal);
    },
    async discard(input, signal) {
      await http.json({ method: "DELETE", path: at(input), headers, mayBeEmpty: true }, signal);
    },
    async probe(signal) {
      await http.json({ method: "GET", path: `/${apiVersion}/models?pageSize=1`, headers }, signal);
    },
    close: () => http.close(),
  };
}
