import { isDeepStrictEqual } from "node:util";
import type { Waiting, WaitingCode } from "../../contract/waiting.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { ImageProvider, ProviderError, Trouble } from "../ports/image-provider.ts";

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** The scope of a state that concerns every model of a provider, because it concerns the credential. */
export const EVERY_MODEL = "*";

/** The health of a provider for one model, or for all (`*`) when it concerns the credential. */
export interface HealthRecord {
  provider: string;
  /** The id that the upstream knows, or `*`. */
  model: string;
  state: "ok" | "cooling" | "disabled";
  /** When a pause ends; null unless cooling. */
  untilMs: number | null;
  /** Why it is not well; null when it is. `message` is that of the last failure, also before it makes a pause. */
  trouble: Trouble | null;
  message: string | null;
  /** The upstream's own words about the last failure, see `ProviderError`; left out or null for none. */
  said?: string | null;
  /** Requests in a row that have failed; left out for none. */
  failures?: number;
  /** Pauses since the last success. */
  pauses: number;
  /** The items of the last failures in a row. */
  failedItems: readonly string[];
  /** When the upstream answered 403, in the last hours. */
  forbiddenMs: readonly number[];
}

interface Rule {
  /** Whether the trouble concerns one model, or the credential and with it every model. */
  scope: "model" | "credential";
  /** The first pause. Each further pause without a success between them is twice as long, up to `capMs`. Infinity: until the configuration changes. */
  baseMs: number;
  capMs: number;
  /** How many troubles it takes, of different items in a row. */
  inARow?: number;
  /** This many within the time disable the provider. */
  disables?: { count: number; withinMs: number };
}

const FAILURE: Rule = { scope: "model", baseMs: 30 * SECOND_MS, capMs: 5 * MINUTE_MS, inARow: 5 };

/** The effect of each trouble on a provider. */
const RULES: Readonly<Record<Trouble, Rule>> = {
  credential: { scope: "credential", baseMs: Number.POSITIVE_INFINITY, capMs: Number.POSITIVE_INFINITY },
  billing: { scope: "credential", baseMs: 10 * MINUTE_MS, capMs: 6 * HOUR_MS },
  forbidden: {
    scope: "credential",
    baseMs: 10 * MINUTE_MS,
    capMs: 10 * MINUTE_MS,
    disables: { count: 3, withinMs: 3 * HOUR_MS },
  },
  "no-model": { scope: "model", baseMs: HOUR_MS, capMs: HOUR_MS },
  limited: { scope: "model", baseMs: 5 * SECOND_MS, capMs: MINUTE_MS },
  unreachable: FAILURE,
  failing: FAILURE,
  ambiguous: FAILURE,
};

/** What a batch reports while it waits for a trouble to end. */
export const WAITING_CODE_OF: Readonly<Record<Trouble, WaitingCode>> = {
  credential: "PROVIDER_CREDENTIAL",
  forbidden: "PROVIDER_FORBIDDEN",
  billing: "PROVIDER_BILLING",
  "no-model": "PROVIDER_MODEL_MISSING",
  limited: "PROVIDER_RATE_LIMITED",
  unreachable: "PROVIDER_UNREACHABLE",
  failing: "PROVIDER_FAILING",
  ambiguous: "PROVIDER_FAILING",
};

/** A result of a request, as far as it concerns the provider. */
type HealthEvent =
  | { type: "success" }
  | {
      type: "trouble";
      trouble: Trouble;
      /** For people: what happened. */
      message: string;
      /** See `ProviderError`. */
      said?: string | null;
      /** See `ProviderError`. */
      isOfModel?: boolean;
      /** The item that had the trouble. An item counts once in a row of failures. */
      itemId: string;
      /** The pause that the upstream asked for; null when it asked for none. */
      retryAfterMs: number | null;
    };

/** The state of a provider that has had no trouble. */
export function healthy({ provider, model }: Pick<HealthRecord, "provider" | "model">): HealthRecord {
  return { provider, model, ...WELL };
}

const WELL = {
  state: "ok",
  untilMs: null,
  trouble: null,
  message: null,
  said: null,
  failures: 0,
  pauses: 0,
  failedItems: [],
  forbiddenMs: [],
} as const satisfies Omit<HealthRecord, "provider" | "model">;

/**
 * Returns the state after a result. The request must have begun in the state `before`: results of requests that began
 * earlier do not end a pause and do not lengthen the next one (`lateResult`). A pure function.
 */
export function afterResult(before: HealthRecord, event: HealthEvent, nowMs: number): HealthRecord {
  if (event.type === "success")
    return before.state === "disabled" ? before : { ...before, ...WELL, forbiddenMs: before.forbiddenMs };
  const { trouble, message, said = null, itemId, retryAfterMs } = event;
  const rule = RULES[trouble];
  const forbiddenMs = rule.disables
    ? [...before.forbiddenMs.filter((ms) => nowMs - ms < (rule.disables?.withinMs ?? 0)), nowMs]
    : before.forbiddenMs;
  const known = { ...before, forbiddenMs, message, said, failures: (before.failures ?? 0) + 1 };
  if (!Number.isFinite(rule.baseMs) || (rule.disables && forbiddenMs.length >= rule.disables.count)) {
    return { ...known, state: "disabled", untilMs: null, trouble };
  }
  const failedItems = rule.inARow ? [...new Set([...before.failedItems, itemId])] : before.failedItems;
  // The first request after a pause for failures decides. A failure after another pause is the first in its row.
  const isSamePause = before.state === "cooling" && before.trouble !== null && RULES[before.trouble].inARow;
  const isEnough = !rule.inARow || isSamePause || failedItems.length >= rule.inARow;
  if (!isEnough) return { ...known, failedItems };
  const pauses = before.trouble === trouble || rule.inARow ? before.pauses + 1 : 1;
  const ownMs = Math.min(rule.capMs, rule.baseMs * 2 ** (pauses - 1));
  // An announced pause of nothing would hammer the upstream.
  const announcedMs = retryAfterMs !== null && retryAfterMs >= SECOND_MS ? retryAfterMs : null;
  const pauseMs =
    trouble === "limited" && announcedMs !== null ? announcedMs : Math.max(ownMs, announcedMs ?? 0);
  const untilMs = Math.max(before.untilMs ?? 0, nowMs + pauseMs);
  return { ...known, state: "cooling", untilMs, trouble, pauses, failedItems: [] };
}

/**
 * Returns the state after a result of a request that began before the present pause. Only a later deadline counts, and
 * what disables the provider.
 */
export function lateResult(before: HealthRecord, event: HealthEvent, nowMs: number): HealthRecord {
  if (event.type === "success" || before.state === "disabled") return before;
  // The pause is over by now: a failure counts like any other.
  if (before.state === "ok") return afterResult(before, event, nowMs);
  const { trouble, message, said = null, retryAfterMs } = event;
  if (!Number.isFinite(RULES[trouble].baseMs)) return afterResult(before, event, nowMs);
  const untilMs = nowMs + (retryAfterMs ?? 0);
  return untilMs > (before.untilMs ?? 0) ? { ...before, untilMs, trouble, message, said } : before;
}

/** How many requests a provider gets at once. A refusal for too many requests (429) lowers it, and successes raise it. */
interface Pace {
  /** At least 1, at most the concurrency of the provider. */
  atOnce: number;
  /** Successes since `atOnce` has changed. */
  successes: number;
  /** Counts the cuts: requests that were sent before the last cut say nothing about the pace after it. */
  cuts: number;
}

/** A pause of this length or more, in ms, is a quota of a minute or a day: every other request would be refused, too. */
const QUOTA_PAUSE_MS = 30 * SECOND_MS;

/** Whether a refusal for too many requests announces that all requests must wait, and not only the refused one. */
function isQuotaPause(retryAfterMs: number | null): boolean {
  return retryAfterMs !== null && retryAfterMs >= QUOTA_PAUSE_MS;
}

/** Halves the pace after a refusal. A pace of 1 stays: then the provider pauses. */
function slower({ atOnce, cuts }: Pace): Pace {
  return { atOnce: Math.max(1, Math.floor(atOnce / 2)), successes: 0, cuts: cuts + 1 };
}

/** Raises the pace by one after as many successes as it has requests at once. */
function afterSuccess(pace: Pace, concurrency: number): Pace {
  const successes = pace.successes + 1;
  if (pace.atOnce >= concurrency || successes < pace.atOnce) return { ...pace, successes };
  return { ...pace, atOnce: pace.atOnce + 1, successes: 0 };
}

/**
 * The permission to send one request. One of its methods must be called. Only the first call counts. None throws: the result of
 * a request never depends on what is known of its provider.
 */
export interface Permit {
  /** The first request after a pause. Others wait for its result. */
  isProbe: boolean;
  succeeded(): void;
  /** `itemId` names the work that failed. An error without a trouble says that the upstream works. */
  failed(error: ProviderError, itemId: string): void;
  /** There is no result: nothing was sent, or the request was aborted. */
  dropped(): void;
}

/**
 * Knows which provider may be asked for which model, as long as the process lives: a new process asks an upstream once more.
 * A provider without upstream facts is always healthy.
 */
export class ProviderHealth {
  readonly #deps: { clock: Clock; log: Log };
  readonly #providers: ReadonlyMap<string, ImageProvider>;
  readonly #scopes = new Map<string, Scope>();
  /** By the names of providers that have refused a request for too many requests. */
  readonly #paces = new Map<string, Pace>();
  readonly #listeners = new Set<() => void>();

  constructor(deps: { clock: Clock; log: Log }, providers: readonly ImageProvider[]) {
    this.#deps = deps;
    this.#providers = new Map(providers.map((provider) => [provider.name, provider]));
  }

  /** Calls the listener after every change. Returns the function that ends it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Returns why a provider is not asked for a model (the upstream's id) now; null when it may be asked. */
  blockOf(provider: ImageProvider, model: string): Block | null {
    const disabled = disabledBy(provider);
    if (disabled) return disabled;
    const blocks = [EVERY_MODEL, model].flatMap((each) => {
      const scope = this.#scopes.get(keyOf({ provider: provider.name, model: each }));
      return (scope && this.#blockOfScope(scope)) ?? [];
    });
    return blocks.reduce<Block | null>(
      (worst, block) => (worst && isLater(worst, block) ? worst : block),
      null,
    );
  }

  /**
   * Lets one request find out first whether an upstream works again that had this trouble in an earlier process. Changes
   * nothing about a provider that this process has asked already.
   */
  askOnceFirst(provider: ImageProvider, model: string, { code, message, said = null }: Waiting): void {
    const key = keyOf({ provider: provider.name, model });
    const known = TROUBLES.find((trouble) => WAITING_CODE_OF[trouble] === code);
    if (known === undefined || provider.upstream === undefined || this.#scopes.has(key)) return;
    const scope = this.#scope(provider, model);
    scope.record = { ...scope.record, state: "cooling", untilMs: 0, message, said };
  }

  /** Returns how many requests a provider gets at once: its concurrency, or fewer after it has refused some (429). */
  atOnce(provider: ImageProvider): number {
    return this.#paces.get(provider.name)?.atOnce ?? provider.concurrency;
  }

  /** Takes the permission for one request; null while the provider is blocked or its first request after a pause runs. */
  begin(provider: ImageProvider, model: string): Permit | null {
    if (provider.upstream === undefined) return ALWAYS_HEALTHY;
    if (this.blockOf(provider, model) !== null) return null;
    const scopes = [...new Set([EVERY_MODEL, model])].map((each) => this.#scope(provider, each));
    const begun = scopes.map((scope) => ({ scope, begunIn: scope.record }));
    const isProbe = scopes.some(({ record }) => record.state === "cooling");
    for (const scope of scopes) scope.isProbing ||= scope.record.state === "cooling";
    const cutsBefore = this.#paces.get(provider.name)?.cuts ?? 0;
    let isEnded = false;
    const end = (event: HealthEvent | null) => {
      if (isEnded) return;
      isEnded = true;
      try {
        this.#end(begun, this.#slowedBy(provider, { cutsBefore, isProbe }, event));
      } catch (error) {
        this.#deps.log.error("a result could not be noted for its provider", { error: String(error) });
      }
    };
    return {
      isProbe,
      succeeded: () => end({ type: "success" }),
      failed: ({ trouble, message, said, retryAfterMs, isOfModel }, itemId) =>
        end(
          trouble === null
            ? { type: "success" }
            : { type: "trouble", trouble, message, said, itemId, retryAfterMs, isOfModel },
        ),
      dropped: () => end(null),
    };
  }

  /**
   * Changes the pace of a provider after a result. Returns the result as far as it can pause the provider: a refusal for too
   * many requests only slows it down, unless it announces a quota or was the only request.
   */
  #slowedBy(
    provider: ImageProvider,
    { cutsBefore, isProbe }: { cutsBefore: number; isProbe: boolean },
    event: HealthEvent | null,
  ): HealthEvent | null {
    const { name, kind, concurrency } = provider;
    const pace = this.#paces.get(name) ?? { atOnce: concurrency, successes: 0, cuts: 0 };
    if (event?.type === "success" && pace.cuts > 0) this.#paces.set(name, afterSuccess(pace, concurrency));
    if (event?.type !== "trouble" || event.trouble !== "limited" || kind === "job") return event;
    if (isProbe || isQuotaPause(event.retryAfterMs)) return event;
    if (pace.cuts > cutsBefore) return null;
    if (pace.atOnce === 1) return event;
    this.#paces.set(name, slower(pace));
    return null;
  }

  /** `begunIn`: the state in which the request began. */
  #end(begun: readonly { scope: Scope; begunIn: HealthRecord }[], event: HealthEvent | null): void {
    const nowMs = this.#deps.clock.nowMs();
    let isChanged = false;
    for (const { scope, begunIn } of begun) {
      if (begunIn.state === "cooling") {
        scope.isProbing = false;
        isChanged ||= event === null;
      }
      if (event === null || (event.type === "trouble" && concernsAll(event) !== isOfAll(begunIn))) continue;
      const isLate = isOther(begunIn, scope.record);
      if (this.#change(scope, (isLate ? lateResult : afterResult)(scope.record, event, nowMs)))
        isChanged = true;
    }
    if (isChanged) this.#tell();
  }

  /** Forgets every trouble of a provider, so that it is asked again at once. Returns false for an unknown name. */
  resume(name: string): boolean {
    this.#paces.delete(name);
    for (const scope of this.#scopes.values())
      if (scope.record.provider === name) this.#change(scope, healthy(scope.record));
    this.#tell();
    return this.#providers.has(name);
  }

  /** The troubles of a provider that are not over. */
  blocksOf = (provider: ImageProvider) => this.troublesOf(provider).filter(({ isOver }) => !isOver);

  /** The same, and those that are over without a success since. */
  troublesOf(provider: ImageProvider): ProviderTrouble[] {
    const disabled = disabledBy(provider);
    if (disabled) return [{ ...disabled, model: EVERY_MODEL, failures: 0, isOver: false }];
    return [...this.#scopes.values()]
      .filter(({ record }) => record.provider === provider.name)
      .flatMap((scope) => troubleOf(scope.record, this.#blockOfScope(scope)) ?? []);
  }

  #blockOfScope(scope: Scope): Block | null {
    const { provider, state, trouble, message, said = null } = scope.record;
    const leftMs = state === "cooling" ? this.#leftMs(scope) : 0;
    if (state === "ok" || (state === "cooling" && !scope.isProbing && leftMs <= 0)) return null;
    const untilMs = state === "disabled" ? null : this.#deps.clock.nowMs() + Math.max(0, leftMs);
    const why = message ?? "The upstream has failed.";
    return { provider, trouble: trouble ?? "failing", message: why, said, untilMs };
  }

  /** The rest of a pause. A clock that is set back does not make the pause longer. */
  #leftMs({ record, pause }: Scope): number {
    const { clock } = this.#deps;
    const byDate = (record.untilMs ?? 0) - clock.nowMs();
    return Math.min(byDate, pause.lengthMs - (clock.monotonicMs() - pause.beganMs));
  }

  #scope(provider: ImageProvider, model: string): Scope {
    const key = keyOf({ provider: provider.name, model });
    const known = this.#scopes.get(key);
    if (known) return known;
    const record = healthy({ provider: provider.name, model });
    const scope: Scope = { record, pause: { beganMs: 0, lengthMs: 0 }, isProbing: false };
    this.#scopes.set(key, scope);
    return scope;
  }

  /** Returns whether the state has changed. */
  #change(scope: Scope, after: HealthRecord): boolean {
    const { record: before } = scope;
    const { clock } = this.#deps;
    if (isDeepStrictEqual(before, after)) return false;
    scope.record = after;
    if (after.untilMs !== null && after.untilMs !== before.untilMs)
      scope.pause = { beganMs: clock.monotonicMs(), lengthMs: after.untilMs - clock.nowMs() };
    if (isOther(before, after)) this.#log(before, after);
    return true;
  }

  #log(
    before: HealthRecord,
    { provider, model, state, untilMs, trouble, message, said }: HealthRecord,
  ): void {
    const facts = { provider, model, trouble, message, ...(said ? { said } : {}) };
    const { log } = this.#deps;
    if (state === "ok") log.info("a provider works again", { provider, model });
    else if (state === "disabled") log.error("a provider is disabled until its configuration changes", facts);
    else if (before.state === "ok")
      log.warn("a provider pauses", { ...facts, until: new Date(untilMs ?? 0).toISOString() });
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }

  /** The configured providers, in their order. */
  get providers(): readonly ImageProvider[] {
    return [...this.#providers.values()];
  }
}

/** Returns why the configuration itself disables a provider, such as a missing key; null when it does not. */
export function disabledBy({ name, upstream }: ImageProvider): Block | null {
  if (!upstream || upstream.disabled === null) return null;
  return { provider: name, trouble: "credential", message: upstream.disabled, untilMs: null };
}

const ALWAYS_HEALTHY: Permit = { isProbe: false, succeeded: () => {}, failed: () => {}, dropped: () => {} };

const isOfAll = ({ model }: HealthRecord) => model === EVERY_MODEL;

const concernsAll = ({ trouble, isOfModel }: { trouble: Trouble; isOfModel?: boolean }) =>
  RULES[trouble].scope === "credential" && !isOfModel;

const isLater = (a: Block, b: Block) => a.untilMs === null || (b.untilMs !== null && a.untilMs >= b.untilMs);

/** Why a provider is not asked now. */
export interface Block {
  provider: string;
  trouble: Trouble;
  message: string;
  /** When it may be asked again; null when only a change of the configuration helps. */
  untilMs: number | null;
  /** See `ProviderError`. */
  said?: string | null;
}

/** What is known of a provider that has had trouble with a model, or with every model. */
export interface ProviderTrouble extends Block {
  /** The upstream's id of the model, or `EVERY_MODEL`. */
  model: string;
  /** Requests in a row that have failed. */
  failures: number;
  /** It may be asked all the same: too few requests have failed, or its pause is over. */
  isOver: boolean;
}

/** The state of a provider for one model, or for all its models. */
interface Scope {
  record: HealthRecord;
  /** When the last pause began, in monotonic ms, and how long it is. */
  pause: { beganMs: number; lengthMs: number };
  isProbing: boolean;
}

const TROUBLES = Object.keys(RULES) as Trouble[];

const keyOf = ({ provider, model }: { provider: string; model: string }) => JSON.stringify([provider, model]);

/** Whether an answer to a request that was sent in the state `before` is stale in the state `after`. */
const isOther = (before: HealthRecord, after: HealthRecord) =>
  after.state !== before.state || (after.state === "cooling" && after.untilMs !== before.untilMs);

/** Returns the trouble of a state that has this block; null when there was none since the last success. */
function troubleOf(record: HealthRecord, block: Block | null): ProviderTrouble | null {
  const { provider, model, failures = 0, message, said = null, trouble } = record;
  if (block === null && failures === 0) return null;
  const last = { provider, trouble: trouble ?? "failing", message: message ?? "", said, untilMs: null };
  return { ...(block ?? last), model, failures, isOver: block === null };
}
