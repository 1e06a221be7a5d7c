import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { getBatch } from "../../client/batches.ts";
import { saving } from "../../client/file-errors.ts";
import { type ErrorCode, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { Http } from "../../http/http.ts";
import type { Clock } from "../../kernel/clock.ts";
import { makeDirectory, writeFileDurably } from "../../kernel/files.ts";
import { formatUsd, microsToNumber } from "../../kernel/money.ts";
import { counted } from "../../kernel/text.ts";
import { withRunLock } from "../../runs/directory/claim.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import type { Purse } from "../command.ts";

const micros = z.int().min(0);

/** What a call has set aside for requests whose outcome is not recorded yet. */
const reservationSchema = z.object({
  id: z.string(),
  micros,
  /** The batches that the directory had before, which others have made. */
  earlier: z.array(z.string()),
});
type Reservation = z.infer<typeof reservationSchema>;

/** What agents have spent on a run, in micro-dollars. */
const spentSchema = z.object({
  directory: z.string(),
  reservations: z.array(reservationSchema),
  /** What each batch holds, or has cost at its end. */
  batches: z.array(z.object({ id: z.string(), micros, has_ended: z.boolean() })),
  /** What images without batches have cost. */
  charged: micros,
});
type Spent = z.infer<typeof spentSchema>;
const fileSchema = z.object({ schema_version: z.literal(1), runs: z.array(spentSchema) });

/** How long to wait for another server on the same data directory. */
const PATIENCE_MS = 20_000;

/** The total that agents may spend, and what they have spent: US dollars. */
interface Budget {
  max_cost: number | null;
  spent: number;
  left: number;
}

interface SpendingOptions {
  /** The file is kept below it, and counts for all servers on it. */
  dataDirectory: string;
  /** The total of all time, in micro-dollars; null: nothing may be spent. */
  maxMicroUsd: number | null;
  /** The command line with which a person allows a total. */
  startWith(microUsd: number): string;
  clock: Clock;
}

/** The outcome of a call that made images without batches. */
interface MadeImages {
  micros: number;
  /** The codes of the images that failed. */
  failures: readonly string[];
}

/** The purse of a call. */
interface CallPurse extends Purse {
  /**
   * Records the outcome of the call, which has ended. It frees what this call has reserved, and nothing of another call. `made`: the outcome of a
   * call without batches; null after an error, which leaves its requests in doubt.
   */
  settle(made: MadeImages | null): Promise<void>;
}

/**
 * What agents spend with `imgbatch mcp --max-cost`: of each batch what it holds, and at its end what it has cost; of images
 * without batches their price. An amount is on disk before the first request leaves, and stays there after a kill until the
 * outcome is known.
 */
export class Spending {
  readonly #options: SpendingOptions;
  readonly #directory: string;
  /** The reservations of calls of this process that have not ended. */
  readonly #live = new Set<string>();

  constructor(options: SpendingOptions) {
    this.#options = options;
    this.#directory = join(options.dataDirectory, "mcp");
  }

  get #file(): string {
    return join(this.#directory, "spending.json");
  }

  /** The purse of a call that works in a run's directory. `http` gives the service, once the call is connected. */
  purseFor(directory: string, http: () => Http): CallPurse {
    let own: string | null = null;
    return {
      reserve: async ({ micros: wanted, images }) => {
        const known = (await this.#read()).find((run) => run.directory === directory);
        if (wanted === 0 && !known?.reservations.some((each) => !this.#live.has(each.id))) return;
        const id = randomUUID();
        await this.#change(async (runs) => {
          const run = runOf(runs, directory);
          const state = await readRunState(directory);
          // The caller has the lock of the run: a reservation of no living call is that of a killed one. What it has left in
          // doubt is asked for again now, but for images that have come meanwhile.
          const left = run.reservations.filter((each) => each.id === own || !this.#live.has(each.id));
          for (const reservation of left) await takeIn(run, reservation, state, http());
          await refresh(runs, http());
          const inDoubt = left.reduce((sum, each) => sum + each.micros, 0);
          if (state?.kind === "realtime") run.charged += Math.max(0, inDoubt - wanted);
          run.reservations = run.reservations.filter((each) => !left.includes(each));
          if (wanted === 0) return;
          this.#requireWithin(sumOf(runs), wanted, images);
          const earlier = idsOf(state).filter((batch) => !run.batches.some((each) => each.id === batch));
          run.reservations.push({ id, micros: wanted, earlier });
          this.#live.add(id);
        });
        own = wanted === 0 ? null : id;
      },
      settle: async (made) => {
        if (own === null) return;
        const id = own;
        own = null;
        try {
          await this.#change((runs) => settle(runOf(runs, directory), id, http(), made));
        } finally {
          this.#live.delete(id);
        }
      },
    };
  }

  /** Returns the budget as it is now. `http`: null without a service, when what batches hold is taken as it was last seen. */
  async budget(http: Http | null): Promise<Budget> {
    const runs = await this.#read();
    if (http !== null && runs.some(isOpen))
      await this.#change(async (current) => {
        await refresh(current, http);
        runs.splice(0, runs.length, ...current);
      });
    const spent = sumOf(runs);
    const { maxMicroUsd } = this.#options;
    return {
      max_cost: maxMicroUsd === null ? null : microsToNumber(maxMicroUsd),
      spent: microsToNumber(spent),
      left: microsToNumber(Math.max(0, (maxMicroUsd ?? 0) - spent)),
    };
  }

  #requireWithin(spent: number, wanted: number, images: number): void {
    const { maxMicroUsd, startWith } = this.#options;
    if (maxMicroUsd !== null && spent + wanted <= maxMicroUsd) return;
    const cost = `${counted(images, "image")} ${images === 1 ? "costs" : "cost"} real money, up to ${formatUsd(wanted, "limit")}`;
    const why =
      maxMicroUsd === null
        ? "this server may not spend any"
        : `${formatUsd(spent, "limit")} of its ${formatUsd(maxMicroUsd)} are spent or held`;
    throw new ImgbatchError("COST_LIMIT", `${cost}, and ${why}. Nothing was sent.`, {
      advice: `ask the person to start this server with consent to the total: ${startWith(spent + wanted)}`,
    });
  }

  async #read(): Promise<Spent[]> {
    const path = this.#file;
    const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return null;
      throw error;
    });
    if (text === null) return [];
    try {
      return fileSchema.parse(JSON.parse(text)).runs;
    } catch (cause) {
      const message = `${path} is damaged: what was spent is not known.`;
      throw new ImgbatchError("STORAGE_FAILED", message, {
        cause,
        advice: `a person has to mend or remove ${path}`,
      });
    }
  }

  /** Changes the file alone: no other server may spend the same amount meanwhile. */
  async #change(change: (runs: Spent[]) => Promise<void>): Promise<void> {
    const directory = this.#directory;
    await saving(directory, () => makeDirectory(directory, 0o700));
    await withRunLock(directory, { clock: this.#options.clock, patienceMs: PATIENCE_MS }, async () => {
      const runs = await this.#read();
      await change(runs);
      const text = `${JSON.stringify({ schema_version: 1, runs }, null, 2)}\n`;
      await saving(this.#file, () => writeFileDurably(this.#file, text, { mode: 0o600 }));
    });
  }
}

function runOf(runs: Spent[], directory: string): Spent {
  const known = runs.find((run) => run.directory === directory);
  if (known !== undefined) return known;
  const run: Spent = { directory, reservations: [], batches: [], charged: 0 };
  runs.push(run);
  return run;
}

const isOpen = ({ batches }: Spent) => batches.some((batch) => !batch.has_ended);

function sumOf(runs: readonly Spent[]): number {
  const ofRun = ({ reservations, charged, batches }: Spent) =>
    [...reservations, ...batches].reduce((sum, { micros }) => sum + micros, charged);
  return runs.reduce((sum, run) => sum + ofRun(run), 0);
}

const idsOf = (state: RunState | null) => (state?.batches ?? []).flatMap(({ id }) => id ?? []);

/** Records in a run the outcome of the call that made a reservation. Another call may have taken the reservation over. */
async function settle(run: Spent, id: string, http: Http, made: MadeImages | null): Promise<void> {
  const reservation = run.reservations.find((each) => each.id === id);
  if (reservation === undefined) return;
  const state = await readRunState(run.directory);
  if (state?.kind !== "realtime") await takeIn(run, reservation, state, http);
  else if (made !== null) {
    run.charged += made.micros;
    const isInDoubt = made.failures.some(mayBePaid);
    reservation.micros = isInDoubt ? Math.max(0, reservation.micros - made.micros) : 0;
  }
  run.reservations = run.reservations.filter((each) => each.micros > 0);
}

/** Moves what is reserved to the batches that were made for it. What is left is for those whose answers are not known. */
async function takeIn(
  run: Spent,
  reservation: Reservation,
  state: RunState | null,
  http: Http,
): Promise<void> {
  if (state?.kind === "realtime") return;
  const isKnown = (id: string) =>
    reservation.earlier.includes(id) || run.batches.some((batch) => batch.id === id);
  for (const id of idsOf(state).filter((each) => !isKnown(each))) {
    const batch = (await amountOf(http, id)) ?? { micros: reservation.micros, has_ended: false };
    run.batches.push({ id, ...batch });
    reservation.micros = Math.max(0, reservation.micros - batch.micros);
  }
  const isUnsent = state?.batches.some(({ id, refused }) => id === null && refused !== true) ?? false;
  if (!isUnsent) reservation.micros = 0;
}

/** Asks for the batches that have not ended. One that cannot be asked for keeps its amount. */
async function refresh(runs: readonly Spent[], http: Http): Promise<void> {
  for (const { batches } of runs)
    for (const batch of batches) if (!batch.has_ended) Object.assign(batch, await amountOf(http, batch.id));
}

async function amountOf(http: Http, id: string): Promise<{ micros: number; has_ended: boolean } | null> {
  try {
    const { batch } = await getBatch(http, id, { maxRetries: 0 });
    const { isDone, isPlay, actualCostMicroUsd, estimatedCostMicroUsd, holdMicroUsd } = batch;
    if (isPlay) return { micros: 0, has_ended: true };
    if (isDone && actualCostMicroUsd !== null) return { micros: actualCostMicroUsd, has_ended: true };
    const held = holdMicroUsd ?? estimatedCostMicroUsd;
    return held === null ? null : { micros: held, has_ended: isDone };
  } catch (error) {
    if (error instanceof ImgbatchError) return null;
    throw error;
  }
}

/** Whether an image that failed so may be paid all the same. */
function mayBePaid(code: string): boolean {
  return code === "REALTIME_OUTCOME_UNKNOWN" || errorEntry(code as ErrorCode).exit === "temporary";
}
