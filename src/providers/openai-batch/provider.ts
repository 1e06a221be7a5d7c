import type { EntryOf } from "../../contract/provider-entries.ts";
import type { JobItem } from "../../domain/ports/image-provider.ts";
import { type AdapterDeps, refuseStoredReferences } from "../upstream/adapter.ts";
import { ambiguous } from "../upstream/classify.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import type { JobAdapter } from "../upstream/jobs/job-provider.ts";
import { resultLines } from "../upstream/jobs/result-lines.ts";
import { credentialHeaders, MAX_REFERENCES } from "../upstream/openai-images/openai-api.ts";
import { imageFields } from "../upstream/openai-images/request.ts";
import { listAt, textAt, valueAt } from "../upstream/read-json.ts";
import { dataUrlOf, formBody, jsonBody, jsonLinesBody } from "../upstream/request-body.ts";
import { JOB_ID, outputFilesOf, readBatch } from "./batch.ts";
import { readResult } from "./result.ts";

/** OpenAI's own names of what a job may ask for, whatever the base URL is. */
const GENERATIONS = "/v1/images/generations";
const EDITS = "/v1/images/edits";
const FIELDS = { sizeAs: "size", responseFormat: "omit" } as const;
const PAGE = 100;
/** The upstream deletes an input that could not be deleted after this time: by then no job can be made of it any more. */
const EXPIRY = { "expires_after[anchor]": "created_at", "expires_after[seconds]": String(3 * 86_400) };

/** Talks to OpenAI's files and batch jobs for images, at half the price. */
export function createOpenaiBatchAdapter(entry: EntryOf<"openai-batch">, deps: AdapterDeps): JobAdapter {
  const { name, auth, extra, apiKeyEnv } = entry;
  const http = new UpstreamHttp(entry, deps);
  const headers = credentialHeaders(auth, apiKeyEnv === null ? null : deps.secret(apiKeyEnv));
  const at = (collection: string, id: string) => `/${collection}/${encodeURIComponent(id)}`;
  const batch = (id: string, signal: AbortSignal) =>
    http.json({ method: "GET", path: at("batches", id), headers }, signal);
  const lineOf = ({ key, request }: JobItem) => {
    refuseStoredReferences(request);
    const images = request.references.map((image) => ({ image_url: dataUrlOf(image) }));
    const body = { ...imageFields({ ...FIELDS, extra }, request), ...(images.length > 0 && { images }) };
    return { custom_id: key, method: "POST", url: images.length > 0 ? EDITS : GENERATIONS, body };
  };
  return {
    address: http.baseUrl,
    takes: { maxReferences: MAX_REFERENCES, ratios: "any", tiers: "any" },
    // All requests of a job have one address.
    splitsReferences: true,
    lineBytes: async (item) => jsonLinesBody([lineOf(item)]).length(),
    async upload(jobId, items, signal) {
      const content = jsonLinesBody(items.map(lineOf));
      const body = formBody({ purpose: "batch", ...EXPIRY }, [
        { field: "file", fileName: `${jobId}.jsonl`, content },
      ]);
      const answer = await http.json({ method: "POST", path: "/files", headers, body }, signal);
      const id = textAt(answer, "id");
      if (id === null) throw ambiguous(name, "an upload without the name of its file", 200);
      return id;
    },
    async create({ jobId, input, hasReferences }, signal) {
      const body = jsonBody({
        input_file_id: input,
        endpoint: hasReferences ? EDITS : GENERATIONS,
        completion_window: "24h",
        metadata: { [JOB_ID]: jobId },
      });
      const job = readBatch(
        name,
        await http.json({ method: "POST", path: "/batches", headers, body }, signal),
      );
      if (job === null) throw ambiguous(name, "HTTP 200 without the name of a job", 200);
      return job.name;
    },
    async page(mark, signal) {
      const query = new URLSearchParams({ limit: String(PAGE), ...(mark && { after: mark }) });
      const page = await http.json({ method: "GET", path: `/batches?${query}`, headers }, signal);
      const jobs = listAt(page, "data").flatMap((each) => readBatch(name, each) ?? []);
      const last = textAt(page, "last_id") ?? jobs.at(-1)?.name ?? null;
      return { jobs, next: valueAt(page, "has_more") === true ? last : null };
    },
    async poll(id, signal) {
      const job = readBatch(name, await batch(id, signal));
      if (job === null) throw ambiguous(name, "HTTP 200 that shows no job", 200);
      return job;
    },
    async outputs(id, signal) {
      const shown = await batch(id, signal);
      return readBatch(name, shown)?.state === "running" ? null : outputFilesOf(shown);
    },
    async *read(file, signal) {
      const path = `${at("files", file)}/content`;
      for await (const line of resultLines(http, { path, headers }, deps.clock, signal))
        yield "value" in line ? await readResult(http, line, signal, deps.clock.nowMs()) : line;
    },
    async cancel(id, signal) {
      const request = { method: "POST", path: `${at("batches", id)}/cancel`, headers } as const;
      await http.json({ ...request, body: jsonBody({}), mayBeEmpty: true }, signal);
    },
    async discard(input, signal) {
      await http.json({ method: "DELETE", path: at("files", input), headers, mayBeEmpty: true }, signal);
    },
    async probe(signal) {
      await http.json({ method: "GET", path: "/models", headers }, signal);
    },
    close: () => http.close(),
  };
}
