import type { CommandSpec } from "../command-line/command-spec.ts";
import { admin } from "./admin/spec.ts";
import { cancel } from "./cancel/spec.ts";
import { completion } from "./completion/spec.ts";
import { webConsole } from "./console/spec.ts";
import { remove } from "./delete/spec.ts";
import { doctor } from "./doctor/spec.ts";
import { download } from "./download/spec.ts";
import { exec } from "./exec/spec.ts";
import { generate } from "./generate/spec.ts";
import { init } from "./init/spec.ts";
import { items } from "./items/spec.ts";
import { list } from "./list/spec.ts";
import { models } from "./models/spec.ts";
import { open } from "./open/spec.ts";
import { providers } from "./providers/spec.ts";
import { ready } from "./ready/spec.ts";
import { retry } from "./retry/spec.ts";
import { schema } from "./schema/spec.ts";
import { serve } from "./serve/spec.ts";
import { status } from "./status/spec.ts";
import { submit } from "./submit/spec.ts";
import { wait } from "./wait/spec.ts";
import { watch } from "./watch/spec.ts";

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
  open,
  cancel,
  retry,
  remove,
  models,
  serve,
  webConsole,
  exec,
  ready,
  init,
  schema,
  providers,
  doctor,
  completion(() => COMMANDS),
  admin,
];
