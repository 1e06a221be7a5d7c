import type { ImageEvent, Images, OpenaiBatch, OpenaiFile } from "../../contract/openai-api.ts";

const facts = {
  size: "1264x848",
  quality: "auto",
  background: "auto",
  output_format: "png",
  usage: {
    input_tokens: 6,
    input_tokens_details: { text_tokens: 6, image_tokens: 0 },
    output_tokens: 1120,
    output_tokens_details: { text_tokens: 0, image_tokens: 1120 },
    total_tokens: 1126,
  },
} as const;

const b64_json = "iVBORw0KGgo=";
const images: Images = { created: 1896048000, data: [{ b64_json }], ...facts };
const event: ImageEvent = {
  type: "image_generation.completed",
  b64_json,
  created_at: 1896048000,
  ...facts,
};

const file: OpenaiFile = {
  id: "k3v9q0w8x2ma",
  object: "file",
  bytes: 1024,
  created_at: 1896048000,
  expires_at: 1896220800,
  filename: "lines.jsonl",
  purpose: "batch",
  status: "processed",
};

const batch: OpenaiBatch = {
  id: "batch_0123456789abcdef0123456789abcdef",
  object: "batch",
  endpoint: "/v1/images/generations",
  model: "vendorx-3.1-flash-image",
  errors: null,
  input_file_id: file.id,
  completion_window: "24h",
  status: "completed",
  output_file_id: "output-0123456789abcdef0123456789abcdef",
  error_file_id: null,
  created_at: 1896048000,
  in_progress_at: 1896048001,
  expires_at: null,
  finalizing_at: 1896048060,
  completed_at: 1896048060,
  failed_at: null,
  expired_at: null,
  cancelling_at: null,
  cancelled_at: null,
  request_counts: { total: 3, completed: 3, failed: 0 },
  metadata: { nightly: "yes" },
};

const listOf = (one: { id: string }) => ({
  object: "list",
  data: [one],
  first_id: one.id,
  last_id: one.id,
  has_more: false,
});

/** An example of each body of OpenAI's API, by the name of its schema. */
export const OPENAI_EXAMPLES: Record<string, unknown> = {
  GenerateImages: { model: "gpt-image-2", prompt: "a red fox in the snow", size: "1536x1024" },
  EditImages: { prompt: "the same in autumn", images: [{ image_url: `data:image/png;base64,${b64_json}` }] },
  Images: images,
  ImageEvent: event,
  CreateOpenaiBatch: {
    input_file_id: file.id,
    endpoint: "/v1/images/generations",
    completion_window: "24h",
  },
  OpenaiBatch: batch,
  OpenaiBatchList: listOf(batch),
  OpenaiFile: file,
  OpenaiFileList: listOf(file),
  DeletedFile: { id: file.id, object: "file", deleted: true },
};
