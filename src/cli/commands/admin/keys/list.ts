import type { RunCommand } from "../../../command-line/command-context.ts";
import { done, withAdmin } from "../with-admin.ts";
import { keyLines, keyView } from "./key-view.ts";

/** `imgbatch admin keys list`: every key, oldest first. */
export const run: RunCommand = (context) =>
  withAdmin(context, { mayCreate: false }, async (admin) => {
    const keys = await admin.keys();
    return done({ keys: keys.map(keyView) }, keyLines(keys));
  });
