import { describe, expect, it } from "vitest";
import { ImgbatchError, SERVICE_ERRORS, type ServiceErrorCode } from "../../../src/contract/errors.ts";
import type { ItemErrorCode } from "../../../src/contract/statuses.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { errorStyleOf } from "../../../src/server/surfaces.ts";
import { FakeProvider, made } from "../../support/fake-provider.ts";
import { errorOf, generate } from "../../support/openai-images.ts";
import { startTestService } from "../../support/service.ts";

/** The answer to a request whose provider fails in this way. */
async function failure(
  code: ItemErrorCode,
  upstreamStatus: number | null,
  retryAfterMs: number | null = null,
) {
  const provider = new FakeProvider();
  provider.answer = () => {
    throw new ProviderError(code, "this is why", { upstreamStatus, retryAfterMs });
  };
  const service = await startTestService({ workers: false, providers: [provider] });
  const answer = await generate(service, { prompt: "x" });
  const header = (name: string) => answer.headers.get(name);
  return {
    status: answer.status,
    reason: answer.statusText,
    shouldRetry: header("x-should-retry"),
    retryAfter: header("retry-after"),
    error: await errorOf(answer),
  };
}

describe("an error of OpenAI's API", () => {
  it("has the code, the type and the headers that OpenAI's libraries obey", async () => {
    const type = "image_generation_user_error";
    expect(await failure("SAFETY_BLOCKED", null)).toEqual({
      status: 400,
      reason: "The prompt or its picture was refused",
      shouldRetry: "false",
      retryAfter: null,
      error: { message: "this is why", type, param: null, code: "moderation_blocked" },
    });
    const final = { shouldRetry: "false", retryAfter: null };
    const unreachable = { type: "api_error", code: "REALTIME_PROVIDER_UNREACHABLE" };
    expect(await failure("PROVIDER_ITEM_FAILED", 502)).toMatchObject({ ...final, error: unreachable });
    expect(await failure("PROVIDER_TIMEOUT", null)).toMatchObject({ ...final, status: 504 });
    const later = { status: 429, shouldRetry: null };
    const limited = (ms: number) => failure("PROVIDER_RATE_LIMITED", 429, ms);
    expect(await limited(7000)).toMatchObject({ ...later, retryAfter: "7" });
    // Above a minute the libraries would ask again at once.
    expect(await limited(3_600_000)).toMatchObject({ ...later, retryAfter: "60" });
    expect(await failure("PROVIDER_ITEM_FAILED", 503)).toMatchObject({ status: 503, shouldRetry: null });
  });

  it("is an error for no image, and has the type of quotas for an empty account", async () => {
    const provider = new FakeProvider();
    provider.answer = () => made();
    const config = {
      models: [
        { id: "m", prices: { "1K": 5000 } },
        { id: "n", prices: { "1K": 1 } },
      ],
    };
    const service = await startTestService({ workers: false, providers: [provider], config });
    const nothing = await generate(service, { prompt: "x", model: "n" });
    expect([nothing.status, nothing.headers.get("x-should-retry"), await errorOf(nothing)]).toMatchObject([
      400,
      "false",
      { code: "no_image", param: null },
    ]);
    const poor = await generate(service, { prompt: "x", model: "gpt-image-1" });
    expect([poor.status, poor.headers.get("x-should-retry"), await errorOf(poor)]).toMatchObject([
      402,
      "false",
      { code: "insufficient_quota", type: "insufficient_quota" },
    ]);
  });

  it("has a fixed reason of its code in the status line, in plain ASCII", () => {
    const style = errorStyleOf("/v1/images/edits");
    const reasons = Object.keys(SERVICE_ERRORS).map((code) => {
      const error = new ImgbatchError(code as ServiceErrorCode, "ä message\r\nof its own");
      return style.head?.(error).reason ?? "";
    });
    expect(reasons.filter((reason) => !/^[\x20-\x7e]{6,200}$/.test(reason))).toEqual([]);
    expect(new Set(reasons).size).toBeGreaterThan(reasons.length - 3);
  });
});
