import { ImgbatchError } from "../../contract/errors.ts";
import { eventText } from "../../contract/event-stream.ts";
import { payingAccounts, type Scope } from "../../domain/accounts.ts";
import type { Feed, ServiceEvent } from "../../domain/feed.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { ApiKeyRecord } from "../../domain/records.ts";
import type { Clock } from "../../kernel/clock.ts";

/** How often changes are sent to the readers. */
const FLUSH_EVERY_MS = 1000;
/** After this many flushes they get a heartbeat, and their keys are checked again. */
const FLUSHES_PER_HEARTBEAT = 15;
const STREAMS_PER_KEY = 16;
/** With more changed items than this in a second a reader reads the batch again. */
const MOST_ITEMS = 100;
const KNOWN_OWNERS = 10_000;

/** One open stream of events. */
interface EventReader {
  caller: { key: Pick<ApiKeyRecord, "id" | "accountId">; scope: Scope };
  /**
   * Sends text, or ends the stream when its reader has not taken what was sent before. Called once a second at most, so that a
   * reader has that time.
   */
  write(text: string): void;
  end(): void;
  /** Whether the credential of the stream is still accepted. */
  isAllowed(): Promise<boolean>;
}

/** What each reader gets now. */
type Texts = Map<EventReader, string>;

function add(texts: Texts, reader: EventReader, text: string): void {
  texts.set(reader, (texts.get(reader) ?? "") + text);
}

/**
 * Tells the readers of event streams what has changed for their keys: ids alone, each batch at most once a second. It listens
 * to the feed only while somebody reads.
 */
export class EventHub {
  readonly #deps: { feed: Feed; stores: Stores; clock: Clock };
  readonly #readers = new Map<EventReader, { money: string | null }>();
  /** The changed items of each changed batch; null for very many. */
  readonly #changed = new Map<string, Set<string> | null>();
  readonly #deleted = new Set<string>();
  /** Something happened that may have moved money. */
  #hasMoved = false;
  readonly #owners = new Map<string, string>();
  #stopping: AbortController | null = null;
  #isClosed = false;

  constructor(deps: { feed: Feed; stores: Stores; clock: Clock }) {
    this.#deps = deps;
  }

  /** Returns the function that ends the subscription. Throws `RATE_LIMITED` when the key has too many streams. */
  open(reader: EventReader): () => void {
    const open = [...this.#readers.keys()].filter(
      ({ caller }) => caller.key.id === reader.caller.key.id,
    ).length;
    if (open >= STREAMS_PER_KEY) {
      const message = `This key has ${open} streams of events open; ${STREAMS_PER_KEY} are allowed at once.`;
      throw new ImgbatchError("RATE_LIMITED", message, { retryAfterMs: FLUSH_EVERY_MS });
    }
    reader.write(eventText("ready", {}));
    if (this.#isClosed) reader.end();
    else this.#add(reader);
    return () => this.#remove(reader);
  }

  /** Ends every stream: the service stops. */
  close(): void {
    this.#isClosed = true;
    for (const reader of [...this.#readers.keys()]) {
      this.#remove(reader);
      reader.end();
    }
  }

  #add(reader: EventReader): void {
    const told: { money: string | null } = { money: null };
    this.#readers.set(reader, told);
    if (reader.caller.scope.keys === "own") this.#rememberMoney(reader, told);
    if (this.#stopping !== null) return;
    const stopping = new AbortController();
    this.#stopping = stopping;
    const unsubscribe = this.#deps.feed.subscribe((each) => this.#note(each));
    stopping.signal.addEventListener("abort", unsubscribe, { once: true });
    this.#run(stopping.signal).catch(() => {});
  }

  #rememberMoney(reader: EventReader, told: { money: string | null }): void {
    // The balance of now is what later ones are compared with.
    this.#moneyOf(reader.caller.key.accountId).then(
      (money) => {
        told.money ??= money;
      },
      () => {},
    );
  }

  #remove(reader: EventReader): void {
    this.#readers.delete(reader);
    if (this.#readers.size > 0) return;
    this.#stopping?.abort();
    this.#stopping = null;
    this.#changed.clear();
    this.#deleted.clear();
  }

  #note(each: ServiceEvent): void {
    if (each.type === "log") return;
    this.#hasMoved = true;
    if (each.type === "request") return;
    const { batchId } = each;
    if (each.type === "batch-gone") {
      this.#changed.delete(batchId);
      this.#deleted.add(batchId);
      return;
    }
    if (each.type === "elsewhere") return void this.#changed.set(batchId, null);
    const items = this.#changed.get(batchId) ?? (this.#changed.has(batchId) ? null : new Set<string>());
    if (each.type === "item" || each.type === "images-gone") items?.add(each.customId);
    this.#changed.set(batchId, items !== null && items.size > MOST_ITEMS ? null : items);
  }

  async #run(signal: AbortSignal): Promise<void> {
    for (let flushes = 1; ; flushes++) {
      await this.#deps.clock.sleep(FLUSH_EVERY_MS, signal);
      const texts: Texts = new Map();
      // The database may be busy for a while: what has changed is sent later.
      await this.#flush(texts).catch(() => {});
      if (flushes % FLUSHES_PER_HEARTBEAT === 0) await this.#heartbeat(texts);
      for (const [reader, text] of texts) if (this.#readers.has(reader)) reader.write(text);
    }
  }

  /** A change that was not sent, because a read has failed, stays for the next time. */
  async #flush(texts: Texts): Promise<void> {
    for (const id of [...this.#changed.keys()]) {
      const owner = await this.#ownerOf(id);
      const items = this.#changed.get(id);
      // The batch may have gone meanwhile.
      if (!this.#changed.delete(id)) continue;
      this.#sendToOwner(texts, owner, eventText("batch", { id, items: items ? [...items] : null }));
    }
    for (const id of [...this.#deleted]) {
      const owner = await this.#ownerOf(id);
      this.#deleted.delete(id);
      this.#sendToOwner(texts, owner, eventText("batch_deleted", { id }));
    }
    if (this.#hasMoved) await this.#flushMoney(texts);
  }

  #sendToOwner(texts: Texts, owner: string | null, text: string): void {
    for (const reader of this.#readers.keys()) {
      const { key, scope } = reader.caller;
      if (key.id === owner || scope.keys === "all") add(texts, reader, text);
    }
  }

  async #flushMoney(texts: Texts): Promise<void> {
    this.#hasMoved = false;
    try {
      for (const [reader, last] of this.#readers) {
        // It sees the work of all keys, so that whatever happens may have moved something.
        if (reader.caller.scope.keys === "all") {
          add(texts, reader, eventText("account", {}));
          continue;
        }
        const money = await this.#moneyOf(reader.caller.key.accountId);
        if (last.money !== null && last.money !== money) add(texts, reader, eventText("account", {}));
        last.money = money;
      }
    } catch (error) {
      this.#hasMoved = true;
      throw error;
    }
  }

  async #ownerOf(batchId: string): Promise<string | null> {
    const known = this.#owners.get(batchId);
    if (known !== undefined) return known;
    const owner = (await this.#deps.stores.read.batches.byId(batchId))?.apiKeyId;
    if (owner === undefined) return null;
    this.#owners.set(batchId, owner);
    for (const oldest of this.#owners.keys()) {
      if (this.#owners.size <= KNOWN_OWNERS) break;
      this.#owners.delete(oldest);
    }
    return owner;
  }

  async #moneyOf(accountId: string): Promise<string> {
    const accounts = await payingAccounts(this.#deps.stores.read, accountId);
    return accounts.map((each) => `${each.balanceMicroUsd} ${each.heldMicroUsd}`).join(" ");
  }

  async #heartbeat(texts: Texts): Promise<void> {
    for (const reader of [...this.#readers.keys()]) {
      if (await reader.isAllowed().catch(() => true)) add(texts, reader, ": still here\n\n");
      else {
        this.#remove(reader);
        reader.end();
      }
    }
  }
}
