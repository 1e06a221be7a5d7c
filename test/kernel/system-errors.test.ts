import { describe, expect, it } from "vitest";
import { saving } from "../../src/client/file-errors.ts";
import { isDiskFull, systemCodeOf } from "../../src/kernel/system-errors.ts";
import { notStored, storageFailure } from "../../src/storage/disk-trouble.ts";

/** Errors as Node makes them: it has no name for a quota that is used up. */
const systemError = (code: string, errno: number) =>
  Object.assign(new Error(`${code}: of a test, write`), { code, errno, syscall: "write" });
const quota = systemError("UNKNOWN", -122);

describe.runIf(process.platform === "linux")("a quota that is used up", () => {
  it.each<[unknown, string, boolean]>([
    [quota, "EDQUOT", true],
    [systemError("ENOSPC", -28), "ENOSPC", true],
    [Object.assign(new Error(), { code: "SQLITE_FULL" }), "SQLITE_FULL", true],
    [Object.assign(new Error(), { code: "SQLITE_IOERR_WRITE" }), "SQLITE_IOERR_WRITE", false],
    [systemError("EIO", -5), "EIO", false],
    [systemError("UNKNOWN", -4094), "UNKNOWN", false],
    [new Error("no code"), "unknown", false],
    [undefined, "unknown", false],
  ])("is a full disk, and no other unnamed error is: %s", (error, code, isFull) => {
    expect([systemCodeOf(error), isDiskFull(error)]).toEqual([code, isFull]);
  });

  it("is reported as such by the service, by its start, and by a command that saves a file", async () => {
    expect(notStored(quota)).toMatchObject({
      reason: "full",
      message: "The service's disk is full.",
    });
    expect(storageFailure("/data", quota)).toMatchObject({
      code: "STORAGE_FAILED",
      message: expect.stringContaining("(EDQUOT)"),
    });
    await expect(saving("a.png", () => Promise.reject(quota))).rejects.toMatchObject({
      code: "SAVE_FAILED",
      message: "Could not save a.png: the disk quota is used up",
    });
  });
});
