import { listModels } from "../../client/batches.ts";
import { EXIT_CODES } from "../../contract/exit-codes.ts";
import { formatUsd } from "../../kernel/money.ts";
import { escapeControls } from "../../kernel/text.ts";
import type { RunCommand } from "../command.ts";
import { withService } from "../with-service.ts";

/** `imgbatch models`: the batch models of this key, each with what an image costs. */
export const run: RunCommand = (context) =>
  withService(context, { workers: false }, async ({ http }) => {
    const models = await listModels(http, context.signal);
    return {
      exitCode: EXIT_CODES.ok.code,
      json: { models: models.map((model) => model.raw) },
      lines: models.map(({ id, imageCostMicroUsd }) =>
        escapeControls(imageCostMicroUsd === null ? id : `${id}  ${formatUsd(imageCostMicroUsd)}`),
      ),
    };
  });
