import type { OpenaiBody } from "../../src/contract/openai-api.ts";
import type { TestService } from "./service.ts";

export const GENERATIONS = "/v1/images/generations";
export const EDITS = "/v1/images/edits";

type Line = Record<string, unknown>;

/** Asks for something below `/v1` with the local key. */
export function ask(service: TestService, path: string, init: RequestInit & { key?: string } = {}) {
  const authorization = `Bearer ${init.key ?? service.credentials.api_key}`;
  return fetch(`${service.url}/v1/${path}`, { ...init, headers: { authorization, ...init.headers } });
}

export function line(id: string, prompt: string, body: object = {}, url = GENERATIONS): Line {
  return { custom_id: id, method: "POST", url, body: { model: "gpt-image-1", prompt, ...body } };
}

export function jsonl(lines: readonly (Line | string)[]): string {
  return lines.map((each) => `${typeof each === "string" ? each : JSON.stringify(each)}\n`).join("");
}

/** Sends a form with a file; a field that is given twice is there twice. */
export function sendFile(
  service: TestService,
  bytes: string | Buffer,
  fields: readonly (readonly [string, string])[] = [["purpose", "batch"]],
  name = "lines.jsonl",
): Promise<Response> {
  const form = new FormData();
  // OpenAI's library puts the file first.
  form.append("file", new Blob([typeof bytes === "string" ? bytes : Uint8Array.from(bytes)]), name);
  for (const [field, value] of fields) form.append(field, value);
  return ask(service, "files", { method: "POST", body: form });
}

export async function fileOf(answer: Response): Promise<OpenaiBody<"OpenaiFile">> {
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`answered ${answer.status}: ${text}`);
  return JSON.parse(text) as OpenaiBody<"OpenaiFile">;
}

export function create(service: TestService, body: object, headers: Record<string, string> = {}) {
  const sent = { endpoint: GENERATIONS, completion_window: "24h", ...body };
  const init = { method: "POST", body: JSON.stringify(sent) };
  return ask(service, "batches", { ...init, headers: { "content-type": "application/json", ...headers } });
}

export async function batchOf(answer: Response): Promise<OpenaiBody<"OpenaiBatch">> {
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`answered ${answer.status}: ${text}`);
  return JSON.parse(text) as OpenaiBody<"OpenaiBatch">;
}

/** Uploads the lines and creates a batch of them. */
export async function createOf(service: TestService, lines: readonly (Line | string)[], body: object = {}) {
  const { id } = await fileOf(await sendFile(service, jsonl(lines)));
  return batchOf(await create(service, { input_file_id: id, ...body }));
}

export const batchNow = async (service: TestService, id: string): Promise<OpenaiBody<"OpenaiBatch">> =>
  batchOf(await ask(service, `batches/${id}`));

/** The batch of the batch API. */
export const batchIdOf = (id: string): string => id.replace("batch_", "imgbatch_");

/** The batch after its end. */
export async function ended(
  service: TestService,
  { id }: Pick<OpenaiBody<"OpenaiBatch">, "id">,
): Promise<OpenaiBody<"OpenaiBatch">> {
  await service.until(batchIdOf(id));
  return batchNow(service, id);
}

export interface ResultLine {
  id: string;
  custom_id: string | null;
  response: {
    status_code: number;
    body: {
      data?: { b64_json: string }[];
      usage?: { total_tokens: number };
      size?: string;
      output_format?: string;
      error?: { code: string; param: string | null; message: string };
    };
  } | null;
  error: { code: string; message: string } | null;
}

/** The lines of a file; none when there is no file. */
export async function resultsOf(service: TestService, fileId: string | null): Promise<ResultLine[]> {
  if (fileId === null) return [];
  const answer = await ask(service, `files/${fileId}/content`);
  if (answer.status !== 200) throw new Error(`answered ${answer.status}: ${await answer.text()}`);
  const text = await answer.text();
  return text
    .split("\n")
    .slice(0, -1)
    .map((each) => JSON.parse(each) as ResultLine);
}

export async function listOf<T>(
  answer: Response,
): Promise<Omit<OpenaiBody<"OpenaiBatchList">, "data"> & { data: T[] }> {
  return (await answer.json()) as Awaited<ReturnType<typeof listOf<T>>>;
}
