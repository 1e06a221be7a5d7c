import type { ServiceErrorCode } from "../../../contract/errors.ts";
import { PATHS } from "../../../contract/routes.ts";
import { CREATION_ERRORS } from "../../jobs/creation-errors.ts";
import { requireBatchFeature, requireBatchGroup } from "../../middleware/authenticate.ts";
import type { Operation } from "../../operation.ts";
import { createBatchJob } from "./create.ts";
import { cancelJob, deleteJob, getJob, listJobs } from "./jobs.ts";

const guards = [requireBatchGroup];
const groupErrors: readonly ServiceErrorCode[] = ["BATCH_IMAGE_GROUP_DISABLED"];
const nothing = { description: "An empty object.", schema: "Empty" };

/** The verb of a model that makes a batch job. */
export const createJobOperation: Operation = {
  id: "batchGenerateContent",
  method: "post",
  path: `${PATHS.nativeModel}:batchGenerateContent`,
  summary: "Make many images as a job, from a file of requests or from requests in the body",
  parameters: ["Model", "MaxCost"],
  body: "CreateJob",
  answers: { 200: { description: "The job. Its lines are read and paid for later.", schema: "Job" } },
  errors: CREATION_ERRORS,
  guards: [requireBatchFeature, ...guards],
  handler: createBatchJob,
};

const remove = {
  summary: "Delete an ended job and its results",
  parameters: ["JobId"],
  answers: { 200: nothing },
  errors: [...groupErrors, "JOB_NOT_FOUND", "JOB_NOT_ENDED"],
  guards,
  handler: deleteJob,
} as const satisfies Partial<Operation>;

/** The operations on jobs. A verb stands before the job: its path looks like the path of a job. */
export const jobOperations: readonly Operation[] = [
  {
    id: "listJobs",
    method: "get",
    path: PATHS.nativeJobs,
    summary: "The jobs of this key, newest first",
    parameters: ["JobPageSize", "PageToken"],
    answers: { 200: { description: "A page of jobs.", schema: "JobList" } },
    errors: [...groupErrors, "REALTIME_INVALID_ARGUMENT", "BATCH_IMAGE_INVALID_QUERY"],
    guards,
    handler: listJobs,
  },
  {
    id: "cancelJob",
    method: "post",
    path: `${PATHS.nativeJob}:cancel`,
    summary: "Stop a job. What was made stays, and is paid for",
    parameters: ["JobId"],
    answers: { 200: nothing },
    errors: [...groupErrors, "JOB_NOT_FOUND", "BATCH_IMAGE_CANCEL_FAILED", "BATCH_IMAGE_QUEUE_FAILED"],
    guards,
    handler: cancelJob,
  },
  { ...remove, id: "deleteJobByVerb", method: "post", path: `${PATHS.nativeJob}:delete` },
  {
    id: "getJob",
    method: "get",
    path: PATHS.nativeJob,
    summary: "A job as it is now",
    parameters: ["JobId"],
    answers: {
      200: { description: "The job; with its results when its requests came inline.", schema: "Job" },
    },
    errors: [...groupErrors, "JOB_NOT_FOUND", "BATCH_IMAGE_DOWNLOAD_LIMITED"],
    guards,
    handler: getJob,
  },
  { ...remove, id: "deleteJob", method: "delete", path: PATHS.nativeJob },
];
