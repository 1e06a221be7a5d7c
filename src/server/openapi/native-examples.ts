import { COMMON_RATIOS } from "../../contract/image-formats.ts";
import type {
  GenerateContentBody,
  GenerateContentResponse,
  Job,
  NativeFile,
  NativeModel,
  SharedModel,
} from "../../contract/native-api.ts";

const MODEL = "vendorx-3-pro-image";

const request: GenerateContentBody = {
  contents: [{ role: "user", parts: [{ text: "a red fox in the snow" }] }],
  generationConfig: {
    responseModalities: ["TEXT", "IMAGE"],
    imageConfig: { aspectRatio: "16:9", imageSize: "2K" },
  },
};

const answer: GenerateContentResponse = {
  candidates: [
    {
      content: { role: "model", parts: [{ inlineData: { mimeType: "image/png", data: "iVBORw0KGgo=" } }] },
      finishReason: "STOP",
      index: 0,
    },
  ],
  usageMetadata: {
    promptTokenCount: 6,
    candidatesTokenCount: 1120,
    totalTokenCount: 1126,
    promptTokensDetails: [{ modality: "TEXT", tokenCount: 6 }],
    candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 1120 }],
  },
  modelVersion: MODEL,
  responseId: "gen_0f1e2d3c4b5a69788796",
};

const native: NativeModel = {
  name: `models/${MODEL}`,
  version: "1",
  displayName: MODEL,
  description: "Makes and edits images",
  inputTokenLimit: 131_072,
  outputTokenLimit: 32_768,
  supportedGenerationMethods: ["generateContent", "streamGenerateContent"],
  aspectRatios: [...COMMON_RATIOS],
  imageSizes: ["1K", "2K", "4K"],
  maxInputImages: 14,
  pricing: { currency: "usd", images: { "1K": 0.134, "2K": 0.134, "4K": 0.24 } },
};

const file: NativeFile = {
  name: "files/k3v9q0x7m2ab",
  displayName: "fox",
  mimeType: "image/png",
  sizeBytes: "48213",
  createTime: "2030-01-29T12:00:00.000Z",
  updateTime: "2030-01-29T12:00:00.000Z",
  expirationTime: "2030-01-31T12:00:00.000Z",
  sha256Hash: Buffer.from("0f".repeat(32)).toString("base64"),
  uri: "http://127.0.0.1:8787/v1beta/files/k3v9q0x7m2ab",
  state: "ACTIVE",
  source: "UPLOADED",
};

const shared: SharedModel = { id: MODEL, object: "model", created: 0, owned_by: "imgbatch", ...native };

const job: Job = {
  name: "batches/0f1e2d3c4b5a69788796a5b4c3d2e1f0",
  metadata: {
    "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
    model: `models/${MODEL}`,
    displayName: "Winter animals",
    inputConfig: { fileName: "files/k3v9x0q2m7ab" },
    output: { responsesFile: "files/batch-0f1e2d3c4b5a69788796a5b4c3d2e1f0" },
    createTime: "2030-01-31T12:00:00.000Z",
    endTime: "2030-01-31T12:04:00.000Z",
    updateTime: "2030-01-31T12:04:00.000Z",
    batchStats: { requestCount: "300", successfulRequestCount: "299", failedRequestCount: "1" },
    state: "BATCH_STATE_SUCCEEDED",
    name: "batches/0f1e2d3c4b5a69788796a5b4c3d2e1f0",
  },
  done: true,
  response: { responsesFile: "files/batch-0f1e2d3c4b5a69788796a5b4c3d2e1f0" },
};

/** An example of each body of the native API, by the name of its schema. */
export const NATIVE_EXAMPLES: Record<string, unknown> = {
  CreateJob: {
    batch: { displayName: "Winter animals", inputConfig: { fileName: "files/k3v9x0q2m7ab" } },
  },
  Job: job,
  JobList: { operations: [job] },
  GenerateContent: request,
  GenerateContentAnswer: answer,
  StartUpload: { file: { displayName: "fox", mimeType: "image/png" } },
  UploadedFile: { file },
  NativeFile: file,
  NativeFileList: { files: [file], nextPageToken: "7" },
  Empty: {},
  NativeModel: native,
  NativeModelList: { models: [native], nextPageToken: "50" },
  SharedModel: shared,
  SharedModelList: { object: "list", data: [shared], models: [native] },
};
