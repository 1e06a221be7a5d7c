import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { ImageProvider, ProviderError, Trouble } from "../ports/image-provider.ts";
import type { Stores } from "../ports/stores.ts";
import type { HealthRecord } from "../records.ts";
import {
  afterResult,
  afterSuccess,
  EVERY_MODEL,
  healthy,
  isQuotaPause,
  lateResult,
  type Pace,
  RULES,
  slower,
} from "./transitions.ts";

/**
 * The permission to send one request. One of its methods must be called. Only the first call counts; others wait for it. None
 * throws or rejects: the result of a request never depends on what is known of its provider.
 */
export interface Ticket {
  /** The first request after a pause. Others wait for its result. */
  isProbe: boolean;
  succeeded(): Promise<void>;
  /** `itemId` names the work that failed. An error without a trouble says that the upstream works. */
  failed(error: ProviderError, itemId: string): Promise<void>;
  /** There is no result: nothing was sent, or the request was aborted. */
  dropped(): void;
}

/**
 * Knows which provider may be asked for which model. Kept in the database, so that a restart does not hammer an upstream
 * that asked for a pause. A provider without upstream facts is always well.
 */
export class ProviderHealth {
  readonly #deps: { stores: Stores; clock: Clock; log: Log };
  readonly #providers: ReadonlyMap<string, ImageProvider>;
  readonly #scopes = new Map<string, Scope>();
  /** By the names of providers that have refused a request for too many requests. */
  readonly #paces = new Map<string, Pace>();
  readonly #listeners = new Set<() => void>();
  #saving: Promise<void> = Promise.resolve();

  private constructor(
    deps: { stores: Stores; clock: Clock; log: Log },
    providers: readonly ImageProvider[],
    records: readonly HealthRecord[],
  ) {
    this.#deps = deps;
    this.#providers = new Map(providers.map((provider) => [provider.name, provider]));
    for (const record of records) this.#scopes.set(keyOf(record), scopeOf(record));
  }

  /** Reads what is known. Forgets providers whose configuration or credential has changed. */
  static async load(
    deps: { stores: Stores; clock: Clock; log: Log },
    providers: readonly ImageProvider[],
  ): Promise<ProviderHealth> {
    const prints = new Map(providers.map(({ name, upstream }) => [name, upstream?.fingerprint]));
    const records = await deps.stores.read.providerHealth.list();
    const isKnown = ({ provider, fingerprint }: HealthRecord) => prints.get(provider) === fingerprint;
    return new ProviderHealth(deps, providers, records.filter(isKnown));
  }

  /** Calls the listener after every change. Returns the function that ends it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Returns why a provider is not asked for a model (the upstream's id) now; null when it may be asked. */
  blockOf(provider: ImageProvider, model: string): Block | null {
    return this.#worstBlock(provider, model, (scope) => this.#blockOfScope(scope));
  }

  /** The same for people: also when only other processes cannot reach the upstream. */
  knownBlockOf(provider: ImageProvider, model: string): Block | null {
    return this.#worstBlock(provider, model, (scope) => this.#knownBlockOfScope(scope));
  }

  #worstBlock(provider: ImageProvider, model: string, of: (scope: Scope) => Block | null): Block | null {
    const disabled = disabledBy(provider);
    if (disabled) return disabled;
    const blocks = [EVERY_MODEL, model].flatMap((each) => {
      const scope = this.#scopes.get(keyOf({ provider: provider.name, model: each }));
      return (scope && of(scope)) ?? [];
    });
    return blocks.reduce<Block | null>(
      (worst, block) => (worst && isLater(worst, block) ? worst : block),
      null,
    );
  }

  /** Returns how many requests a provider gets at once: its concurrency, or fewer after it has refused some (429). */
  atOnce(provider: ImageProvider): number {
    return this.#paces.get(provider.name)?.atOnce ?? provider.concurrency;
  }

  /**
   * Slows a provider down after it has refused a request for too many requests. Returns false when the provider must pause
   * instead: the refusal announces a quota, or the request was the only one.
   */
  #slowDown(provider: ImageProvider, cutsBefore: number, retryAfterMs: number | null): boolean {
    if (provider.kind === "job" || isQuotaPause(retryAfterMs)) return false;
    const pace = this.#paces.get(provider.name) ?? { atOnce: provider.concurrency, successes: 0, cuts: 0 };
    if (pace.cuts > cutsBefore) return true;
    if (pace.atOnce === 1) return false;
    this.#paces.set(provider.name, slower(pace));
    return true;
  }

  /** Takes the permission for one request; null while the provider is blocked or its first request after a pause runs. */
  begin(provider: ImageProvider, model: string): Ticket | null {
    if (provider.upstream === undefined) return ALWAYS_WELL;
    if (this.blockOf(provider, model) !== null) return null;
    const scopes = [...new Set([EVERY_MODEL, model])].map((each) => this.#scope(provider, each));
    const begun = scopes.map((scope) => ({ scope, begunIn: scope.record }));
    const isProbe = scopes.some(({ record }) => record.state === "cooling");
    for (const scope of scopes) scope.isProbing ||= scope.record.state === "cooling";
    const cutsBefore = this.#paces.get(provider.name)?.cuts ?? 0;
    let ended: Promise<void> | null = null;
    const end = (event: HealthEvent | null) => {
      if (ended === null && event?.type === "success") {
        const pace = this.#paces.get(provider.name);
        if (pace) this.#paces.set(provider.name, afterSuccess(pace, provider.concurrency));
      }
      ended ??= this.#end(begun, event).catch((error) =>
        this.#deps.log.error("a result could not be noted for its provider", { error: String(error) }),
      );
      return ended;
    };
    return {
      isProbe,
      succeeded: () => end({ type: "success" }),
      failed: ({ trouble, message, said, retryAfterMs }, itemId) => {
        if (trouble === null) return end({ type: "success" });
        const isSlowed =
          ended === null &&
          trouble === "limited" &&
          !isProbe &&
          this.#slowDown(provider, cutsBefore, retryAfterMs);
        return end(isSlowed ? null : { type: "trouble", trouble, message, said, itemId, retryAfterMs });
      },
      dropped: () => void end(null),
    };
  }

  /** `begunIn`: the state in which the request began. */
  async #end(
    begun: readonly { scope: Scope; begunIn: HealthRecord }[],
    event: HealthEvent | null,
  ): Promise<void> {
    const nowMs = this.#deps.clock.nowMs();
    let isChanged = false;
    for (const { scope, begunIn } of begun) {
      if (begunIn.state === "cooling") {
        scope.isProbing = false;
        isChanged ||= event === null;
      }
      if (event === null || (event.type === "trouble" && concernsAll(event) !== isOfAll(begunIn))) continue;
      const after = (record: HealthRecord) =>
        (isOther(begunIn, record) ? lateResult : afterResult)(record, event, nowMs);
      if (this.#change(scope, after)) isChanged = true;
    }
    if (!isChanged) return;
    await this.#saving;
    this.#tell();
  }

  /** Forgets every trouble of a provider: it was probed and works. */
  async forgive(name: string): Promise<void> {
    for (const scope of this.#scopes.values())
      if (scope.record.provider === name) this.#change(scope, healthy);
    await this.#saving;
    this.#tell();
  }

  /**
   * Takes over the states of the database, which other processes change, too: they may have met troubles, or forgiven them
   * after a probe.
   */
  async refresh(): Promise<void> {
    this.#saving = this.#saving
      .then(() => this.#readAgain())
      .catch((error) =>
        this.#deps.log.error("the state of providers could not be read", { error: String(error) }),
      );
    await this.#saving;
  }

  /** The troubles of a provider that are not over, those of other processes too. */
  blocksOf = (provider: ImageProvider) => this.troublesOf(provider).filter(({ isOver }) => !isOver);

  /** The same, and those that are over without a success since. */
  troublesOf(provider: ImageProvider): ProviderTrouble[] {
    const disabled = disabledBy(provider);
    if (disabled) return [{ ...disabled, model: EVERY_MODEL, failures: 0, isOver: false }];
    return [...this.#scopes.values()]
      .filter(({ record }) => record.provider === provider.name)
      .flatMap((scope) => troubleOf(scope.record, this.#knownBlockOfScope(scope)) ?? []);
  }

  #knownBlockOfScope(scope: Scope): Block | null {
    const { elsewhere } = scope;
    return this.#blockOfScope(scope) ?? (elsewhere && this.#blockOfScope(scopeOf(elsewhere)));
  }

  #blockOfScope({ record, isProbing }: Scope): Block | null {
    const { provider, state, trouble, message, said = null, untilMs } = record;
    if (state === "ok") return null;
    const nowMs = this.#deps.clock.nowMs();
    if (state === "cooling" && !isProbing && nowMs >= (untilMs ?? 0)) return null;
    const block = {
      provider,
      trouble: trouble ?? "failing",
      message: message ?? "The upstream has failed.",
      said,
    };
    return { ...block, untilMs: state === "disabled" ? null : Math.max(untilMs ?? 0, nowMs) };
  }

  #scope(provider: ImageProvider, model: string): Scope {
    const key = keyOf({ provider: provider.name, model });
    const known = this.#scopes.get(key);
    if (known) return known;
    const fingerprint = provider.upstream?.fingerprint ?? "";
    const record = healthy({ provider: provider.name, model, fingerprint });
    const scope = scopeOf(record);
    this.#scopes.set(key, scope);
    return scope;
  }

  /**
   * Changes a state in this process at once, and then in the database: there by what other processes have met since. Returns
   * whether it changes here. A change that could not be stored counts here, and is stored with the next one or look.
   */
  #change(scope: Scope, to: (record: HealthRecord) => HealthRecord): boolean {
    const before = scope.record;
    const after = to(before);
    if (isDeepStrictEqual(before, after)) return false;
    scope.record = after;
    scope.unsaved.push(to);
    if (isOther(before, after)) this.#log(before, after);
    this.#saving = this.#saving.then(() => this.#save(scope));
    return true;
  }

  async #save({ record, unsaved }: Scope): Promise<void> {
    const { stores, log } = this.#deps;
    const changes = [...unsaved];
    if (changes.length === 0) return;
    try {
      await stores.write(async (tx) => {
        const row = (await tx.providerHealth.list()).find((each) => keyOf(each) === keyOf(record));
        const isOfAnother = row?.fingerprint !== record.fingerprint || row.trouble === "unreachable";
        const after = isOfAnother ? record : changes.reduce((earlier, to) => to(earlier), row);
        await tx.providerHealth.put(after);
      });
      unsaved.splice(0, changes.length);
    } catch (error) {
      log.error("the state of a provider could not be stored", { error: String(error) });
    }
  }

  async #readAgain(): Promise<void> {
    for (const scope of this.#scopes.values()) await this.#save(scope);
    let isChanged = false;
    for (const row of await this.#deps.stores.read.providerHealth.list()) {
      const provider = this.#providers.get(row.provider);
      if (provider?.upstream === undefined || provider.upstream.fingerprint !== row.fingerprint) continue;
      const scope = this.#scope(provider, row.model);
      const { record: before, unsaved } = scope;
      // A newer result of this process is stored next.
      if (unsaved.length > 0) continue;
      scope.elsewhere = row.trouble === "unreachable" && !isDeepStrictEqual(row, before) ? row : null;
      if (scope.elsewhere) continue;
      scope.record = row;
      if (!isOther(before, row)) continue;
      this.#log(before, row);
      isChanged = true;
    }
    if (isChanged) this.#tell();
  }

  #log(
    before: HealthRecord,
    { provider, model, state, untilMs, trouble, message, said }: HealthRecord,
  ): void {
    const facts = { provider, model, trouble, message, ...(said ? { said } : {}) };
    const { log } = this.#deps;
    if (state === "ok") log.info("a provider is well again", { provider, model });
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

const ALWAYS_WELL: Ticket = {
  isProbe: false,
  succeeded: async () => {},
  failed: async () => {},
  dropped: () => {},
};

const isOfAll = ({ model }: HealthRecord) => model === EVERY_MODEL;

const concernsAll = ({ trouble }: { trouble: Trouble }) => RULES[trouble].scope === "credential";

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
  /** The pause of another process that could not reach the upstream: this one may be able to. */
  elsewhere: HealthRecord | null;
  isProbing: boolean;
  /** The changes that are not in the database yet. */
  unsaved: ((record: HealthRecord) => HealthRecord)[];
}

const scopeOf = (record: HealthRecord): Scope => ({
  record,
  elsewhere: null,
  isProbing: false,
  unsaved: [],
});

const keyOf = ({ provider, model }: { provider: string; model: string }) => JSON.stringify([provider, model]);

type HealthEvent = Parameters<typeof afterResult>[1];

/** Whether requests of the state before are late in the state after. */
const isOther = (before: HealthRecord, after: HealthRecord) =>
  after.state !== before.state || (after.state === "cooling" && after.untilMs !== before.untilMs);

/** Returns the trouble of a state that has this block; null when there was none since the last success. */
function troubleOf(record: HealthRecord, block: Block | null): ProviderTrouble | null {
  const { provider, model, failures = 0, message, said = null, trouble } = record;
  if (block === null && failures === 0) return null;
  const last = { provider, trouble: trouble ?? "failing", message: message ?? "", said, untilMs: null };
  return { ...(block ?? last), model, failures, isOver: block === null };
}
