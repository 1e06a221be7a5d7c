import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { counted } from "../../../kernel/text.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { withAdmin } from "./with-admin.ts";

/** `imgbatch admin check`: verifies every invariant of a data directory. A service may run on it meanwhile. */
export const run: RunCommand = (context) =>
  withAdmin(context, { mayCreate: false, readsImages: true }, async (admin, directory) => {
    const { accounts, batches, images, problems } = await admin.check();
    const summary = [
      counted(accounts, "account"),
      counted(batches, "batch", "batches"),
      counted(images, "image"),
    ].join(", ");
    const isFine = problems.length === 0;
    return {
      exitCode: isFine ? EXIT_CODES.ok.code : EXIT_CODES.someFailed.code,
      json: { data: directory, accounts, batches, images, problems },
      lines: isFine
        ? [`ok: ${summary}`]
        : [...problems, `${counted(problems.length, "problem")} in ${summary}`],
      next: isFine ? null : "stop the service and put a backup of the data directory in its place",
    };
  });
