import { z } from "zod";
import { type NativeBody, nativeSchemas } from "../../src/contract/native-api.ts";
import { generate } from "./realtime.ts";
import { MODEL, type TestService } from "./service.ts";

/** A line of a result file: a response or an error, and the key of the request's line. */
export const resultLineSchema = z.looseObject({
  response: nativeSchemas.GenerateContentAnswer.optional(),
  error: nativeSchemas.Job.shape.error,
  key: z.unknown().optional(),
});

/** Asks the service with the local key in the vendor's header; `path` is below the version prefix. */
export function askJobs(service: TestService, path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { "x-vendorx-api-key": service.credentials.api_key, "content-type": "application/json" };
  return fetch(`${service.url}/v1beta/${path}`, { ...init, headers: { ...headers, ...init.headers } });
}

/** Creates a job with this input and returns it; fails the test on any other answer. */
export async function createJob(
  service: TestService,
  inputConfig: object,
  name = "foxes",
): Promise<NativeBody<"Job">> {
  const body = { batch: { displayName: name, inputConfig } };
  const answer = await generate(service, body, { verb: "batchGenerateContent", model: MODEL });
  if (answer.status !== 200) throw new Error(`create answered ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as NativeBody<"Job">;
}

/** Creates a job whose requests come inline. */
export function createInline(
  service: TestService,
  requests: readonly object[],
  name?: string,
): Promise<NativeBody<"Job">> {
  return createJob(service, { requests: { requests } }, name);
}

/** The batch that a job is. */
export const batchIdOf = (job: NativeBody<"Job">): string => job.name.replace("batches/", "imgbatch_");

/** The job as it is now. */
export async function jobOf(
  service: TestService,
  { name }: Pick<NativeBody<"Job">, "name">,
): Promise<NativeBody<"Job">> {
  return (await (await askJobs(service, name)).json()) as NativeBody<"Job">;
}

/** The job after its end. */
export async function endedJob(service: TestService, job: NativeBody<"Job">): Promise<NativeBody<"Job">> {
  await service.until(batchIdOf(job));
  return jobOf(service, job);
}

/** The results of a job that came inline. */
export function inlinedOf(job: NativeBody<"Job">) {
  return job.metadata.output?.inlinedResponses?.inlinedResponses ?? [];
}
