import { createServer } from "node:http";
import express, { type RequestHandler } from "express";
import { describe, expect, it } from "vitest";
import { errorBody, nativeErrorBody } from "../../../src/contract/errors.ts";
import { StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import { answerErrors, type ErrorStyle, toServiceError } from "../../../src/server/http/errors.ts";
import { errorStyleOf } from "../../../src/server/surfaces.ts";
import { listening } from "../../support/listening.ts";
import { watchedLog } from "../../support/service.ts";

it.each(["full", "broken", "busy", "unknown-commit"] as const)(
  "[DISK-1] a storage that is unavailable (%s) is an error of both APIs that may be tried again",
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

describe("a handler that fails", () => {
  /** The status of the response to a request, as this handler and this style of errors make it; null without one. */
  async function statusOf(
    handler: RequestHandler,
    style: (path: string) => ErrorStyle,
    logged: string[] = [],
  ) {
    const passedOn: RequestHandler = (_request, response) => void response.end("passed on");
    const app = express().use(handler, passedOn, answerErrors(watchedLog(logged), style));
    const url = await listening(createServer(app));
    return fetch(url).then(
      async (response) => [response.status, (await response.text()).includes("INTERNAL_ERROR")],
      () => null,
    );
  }

  it.each([
    ["rejects without a reason", () => Promise.reject()],
    ["rejects with null", () => Promise.reject(null)],
    ["rejects with what has no text", () => Promise.reject(Object.create(null))],
  ])("is an internal error when it %s: the request is not passed on", async (_, handler) => {
    expect(await statusOf(handler, errorStyleOf)).toEqual([500, true]);
  });

  it("harms no other request when its error cannot be answered", async () => {
    const logged: string[] = [];
    const unanswerable = () => {
      throw new Error("no style for this path");
    };
    expect(await statusOf(() => Promise.reject(new Error("the first")), unanswerable, logged)).toBeNull();
    expect(logged.join()).toMatch(
      /"Error: no style for this path.*"Error: the first.*an error could not be answered/,
    );
  });
});
