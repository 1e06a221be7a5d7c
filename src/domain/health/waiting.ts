import { named, type Waiting, type WaitingCode } from "../../contract/waiting.ts";
import type { Trouble } from "../ports/image-provider.ts";
import type { Block } from "./provider-health.ts";

const CODES: Readonly<Record<Trouble, WaitingCode>> = {
  credential: "PROVIDER_CREDENTIAL",
  forbidden: "PROVIDER_FORBIDDEN",
  billing: "PROVIDER_BILLING",
  "no-model": "PROVIDER_MODEL_MISSING",
  limited: "PROVIDER_RATE_LIMITED",
  unreachable: "PROVIDER_UNREACHABLE",
  failing: "PROVIDER_FAILING",
  ambiguous: "PROVIDER_FAILING",
};

/** Returns the waiting of a batch whose providers are all blocked: that of the provider that may be asked first. */
export function waitingFor(blocks: readonly Block[]): Waiting {
  const atMs = ({ untilMs }: Block) => untilMs ?? Number.POSITIVE_INFINITY;
  const [first] = [...blocks].sort((a, b) => atMs(a) - atMs(b));
  if (first) {
    const { provider, trouble, message, untilMs } = first;
    return { code: CODES[trouble], message: named(provider, message), untilMs };
  }
  const message =
    "The provider of this batch is not configured, nor another one of the same type and address.";
  return { code: "PROVIDER_NOT_CONFIGURED", message, untilMs: null };
}
