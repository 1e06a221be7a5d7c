import { expect, it } from "vitest";
import { errorBody } from "../../../src/contract/errors.ts";
import { nativeErrorBody } from "../../../src/contract/native-api/errors.ts";
import { StorageUnavailable } from "../../../src/domain/ports/storage-unavailable.ts";
import { toServiceError } from "../../../src/server/middleware/errors.ts";

it.each(["full", "broken", "busy", "unknown-commit"] as const)(
  "[DISK-1] [BUSY-2] a storage that is unavailable (%s) is an error of both APIs that may be tried again",
  (reason) => {
    const error = toServiceError(new StorageUnavailable(reason, "The service's disk is full.", null));
    expect(errorBody(error).error).toEqual({
      type: "api_error",
      code: "BATCH_IMAGE_QUEUE_FAILED",
      message: "The service's disk is full.",
    });
    expect(nativeErrorBody(error).error).toMatchObject({
      code: 502,
      status: "UNAVAILABLE",
      message: "The service's disk is full.",
    });
  },
);
