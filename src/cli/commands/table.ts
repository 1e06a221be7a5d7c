import type { CommandSpec } from "../command.ts";
import { cancel, items, list, models, remove, status } from "../specs/batches.ts";
import { generate } from "../specs/generate.ts";
import { download, retry, submit, wait, watch } from "../specs/runs.ts";
import { serve } from "../specs/serve.ts";
import { admin } from "./admin/table.ts";

/**
 * Every command: what it is called, what it takes, and where its work is. Importing this file must stay cheap,
 * so nothing of the work is imported here.
 */
export const COMMANDS: readonly CommandSpec[] = [
  submit,
  generate,
  status,
  wait,
  watch,
  list,
  items,
  download,
  cancel,
  retry,
  remove,
  models,
  serve,
  admin,
];
