import type { Batch, BatchWaiting } from "../../client/wire/read-batch.ts";
import type { ProviderIdentity } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { isWaitingCode, named, saidLines } from "../../contract/waiting.ts";
import { clockTime } from "../../kernel/durations.ts";
import { EMBEDDED, isOnThisMachine, type RunService } from "../directory/service-identity.ts";

/** A command waits this long for a provider that pauses. The API rounds the end of a pause up to a second. */
const PATIENCE_MS = 10 * 60_000 + 1000;

/**
 * Returns the error that ends a command because none of its batches can go on soon; null while one can. The embedded
 * service keeps the batches for the next command. A service elsewhere goes on by itself, so there a command keeps waiting.
 */
export function parkedError(
  batches: readonly Batch[],
  { identity, isBorrowed, providers = [] }: Pick<RunService, "identity" | "isBorrowed" | "providers">,
  nowMs: number,
): ImgbatchError | null {
  if (identity !== EMBEDDED) return null;
  const open = batches.filter((batch) => !batch.isDone);
  const stuck = open.flatMap(({ provider, waiting }) => {
    const isLong = waiting?.untilMs === null || (waiting?.untilMs ?? 0) - nowMs > PATIENCE_MS;
    return waiting && (isLong || isRefusedHere(waiting, providers)) ? [{ provider, waiting }] : [];
  });
  const paused = new Set(stuck.map(({ provider }) => provider));
  // A batch that waits in line behind a stuck one of its provider cannot go on either.
  const queued = open.filter(({ status, provider }) => status === "queued" && paused.has(provider));
  const [first] = stuck.toSorted(
    (a, b) =>
      (a.waiting.untilMs ?? Number.POSITIVE_INFINITY) - (b.waiting.untilMs ?? Number.POSITIVE_INFINITY),
  );
  if (first === undefined || stuck.length + queued.length < open.length) return null;
  const { code, message, untilMs, said } = first.waiting;
  const isRefused = isRefusedHere(first.waiting, providers);
  const until = untilMs === null ? " until the configuration changes" : ` until ${clockTime(untilMs)}`;
  const [one] = open;
  const which = open.length === 1 ? `${one?.id} is` : `${open.length} batches are`;
  const why = code === "PROVIDER_NOT_CONFIGURED" && first.provider ? named(first.provider, message) : message;
  const restart =
    isBorrowed && untilMs === null
      ? " The service of another process reads a change when it starts again."
      : "";
  return new ImgbatchError(
    isWaitingCode(code) ? code : "PROVIDER_FAILING",
    `${which} parked${isRefused ? "" : until}. ${why}${restart}`,
    { details: saidLines(said) },
  );
}

/**
 * Whether the only upstream of a service is on this machine and refuses connections: its server does not run, and it does
 * not come back by itself.
 */
function isRefusedHere({ code, message }: BatchWaiting, providers: readonly ProviderIdentity[]): boolean {
  return code === "PROVIDER_UNREACHABLE" && refusingServer(message, providers) !== null;
}

/** Returns the upstream on this machine whose refused connection a message reports; null when there is none, or others are left. */
export function refusingServer(
  message: string,
  providers: readonly ProviderIdentity[],
): (ProviderIdentity & { address: string }) | null {
  const [only, ...others] = providers.filter(({ type }) => type !== "procedural");
  if (only === undefined || others.length > 0 || !message.includes("ECONNREFUSED")) return null;
  const { address } = only;
  return address !== null && isOnThisMachine(address) ? { ...only, address } : null;
}
