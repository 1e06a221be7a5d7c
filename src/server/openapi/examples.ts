import type {
  BatchModel,
  BatchObject,
  CreateBatchBody,
  ItemObject,
  ListEnvelope,
} from "../../contract/batch-api.ts";
import type { AccountObject, LedgerEntryObject, UsageObject } from "../../contract/console-api.ts";
import { NATIVE_EXAMPLES } from "./native-examples.ts";
import { OPENAI_EXAMPLES } from "./openai-examples.ts";
import type { Readiness } from "./schemas.ts";

const MODEL = "vendorx-3.1-flash-image";

const request: CreateBatchBody = {
  model: MODEL,
  task_name: "Winter animals",
  items: [
    { custom_id: "fox", prompt: "a red fox in the snow" },
    { custom_id: "owl", prompt: "a snowy owl on a branch", output_count: 2 },
  ],
  metadata: { project: "calendar" },
};

const batch: BatchObject = {
  id: "imgbatch_0f1e2d3c4b5a69788796a5b4c3d2e1f0",
  object: "image.batch",
  task_name: "Winter animals",
  status: "completed",
  model: MODEL,
  parent_batch_id: null,
  metadata: { project: "calendar" },
  provider: "procedural",
  item_count: 3,
  success_count: 2,
  fail_count: 1,
  pending_count: 0,
  estimated_cost: 0.1005,
  hold_amount: 0.1206,
  actual_cost: 0.067,
  play_money: true,
  created_at: 1896048000,
  submitted_at: 1896048000,
  settled_at: 1896048042,
  downloaded_at: null,
  output_deleted_at: null,
  expires_at: 1896307242,
  error: null,
  source: "batch",
  waiting: null,
  queued_behind: null,
  upstream_jobs: [],
};

const fox: ItemObject = {
  custom_id: "fox",
  status: "success",
  prompt_preview: "a red fox in the snow",
  mime_type: "image/png",
  file_extension: "png",
  image_count: 1,
  model_version: "vendorx-3.1-flash-image (procedural/1)",
  provider: "procedural",
  seed: null,
  upstream_cost: null,
  notes: [],
  error: null,
  cost: 0.0335,
};

const owl: ItemObject = {
  custom_id: "owl_01",
  status: "failed",
  prompt_preview: "a snowy owl on a branch",
  mime_type: null,
  file_extension: null,
  image_count: 0,
  model_version: null,
  provider: "procedural",
  seed: null,
  upstream_cost: null,
  notes: [],
  error: { code: "SAFETY_BLOCKED", message: "The provider refused the prompt.", source: "provider" },
  cost: null,
};

const model: BatchModel = {
  id: MODEL,
  object: "image.batch.model",
  provider: "procedural",
  max_reference_images: 3,
  pricing: { currency: "usd", batch_image: 0.0335, batch_hold: 0.0402 },
};

const list = <T>(...data: T[]): ListEnvelope<T> => ({
  object: "list",
  data,
  has_more: false,
  next_cursor: null,
});

const account: AccountObject = {
  object: "account",
  balance: 999.8995,
  held: 0.1206,
  play_money: true,
  real_money: null,
  key: { name: "local", prefix: "imgb_AbCdEfG" },
  owner: true,
  limits: {
    items_per_batch: 200,
    output_images_per_batch: 200,
    output_count_per_item: 4,
    prompt_chars: 8000,
    reference_image_bytes: 10_485_760,
    reference_images_per_batch: 1000,
    reference_bytes_per_batch: 134_217_728,
    create_body_bytes: 201_326_592,
    zip_items: 200,
  },
};

const usage: UsageObject = { day: "2030-01-31", model: MODEL, image_count: 2, cost: 0.067, play_money: true };

const hold: LedgerEntryObject = {
  kind: "hold",
  amount: 0.1206,
  balance_change: -0.1206,
  held_change: 0.1206,
  balance: 999.8794,
  play_money: true,
  batch_id: batch.id,
  created_at: 1896048000,
};

const ready: Readiness = { status: "ready", problems: [] };

/** An example of each body, by the name of its schema. */
export const EXAMPLES: Record<string, unknown> = {
  CreateBatch: request,
  RetryBatch: { custom_ids: ["owl"] },
  Batch: batch,
  BatchList: list(batch),
  ItemList: list(fox, owl),
  BatchModelList: list(model),
  Account: account,
  UsageList: list(usage),
  LedgerList: list(hold),
  Readiness: ready,
  ...NATIVE_EXAMPLES,
  ...OPENAI_EXAMPLES,
};
