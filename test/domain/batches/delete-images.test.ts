import { expect, it } from "vitest";
import { deleteImages } from "../../../src/domain/batches/delete.ts";
import { Feed } from "../../../src/domain/feed.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { openBeside } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

it("of one item of a vendor's batch job is refused: its results are one file", async () => {
  const deps = { ...(await openBeside(await tempDir())), feed: new Feed(), log: silentLog };
  const job = await openBatchRecord(deps.stores, 1, { source: "native" });
  await expect(deleteImages(deps, job.id, { id: 1, customId: "fox" }, 1)).rejects.toMatchObject({
    code: "BATCH_IMAGE_OUTPUT_DELETE_NOT_READY",
    message: expect.stringContaining("one file"),
  });
});
