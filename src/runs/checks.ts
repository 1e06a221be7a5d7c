import { join } from "node:path";
import PQueue from "p-queue";
import { z } from "zod";
import type { Look } from "../imaging/look.ts";
import type { Clock } from "../kernel/clock.ts";
import type { InputLine } from "./directory/input.ts";
import { appendToJournal, readJournal } from "./directory/journal.ts";
import { CHECKS_FILE } from "./directory/names.ts";
import type { ResultLine } from "./directory/results.ts";
import { isImagePath, type ResultFile, readFacts, readJsonLine } from "./directory/run-files.ts";

/*
 * What a look at the pictures of a run finds, without asking anybody: notes for a person, which decide nothing. `checks.jsonl` in
 * the run's directory keeps what each picture looks like, by its SHA-256, so that each is looked at once. What is odd about it
 * depends on what was asked for and on the other pictures, and is found anew each time.
 */

/** Lines with another number were written by other rules: those pictures are looked at again. */
const RULES = 1;

const lookSchema = z.object({
  flat: z.boolean(),
  bars: z.object({ sides: z.enum(["left and right", "top and bottom"]), share: z.number() }).nullable(),
  transparent: z.boolean(),
  dhash: z.string().regex(/^[0-9a-f]{16}$/),
  colours: z.string().length(256),
}) satisfies z.ZodType<Look>;

const lineSchema = z.object({
  sha256: z.string(),
  rules: z.literal(RULES),
  /** Null for a picture that cannot be decoded, or is too small to judge. */
  look: lookSchema.nullable(),
});

/** The kinds of what is odd, as they are counted. */
const ODDITIES = ["one flat colour", "bars", "not transparent", "nearly the same"] as const;

interface Oddity {
  kind: (typeof ODDITIES)[number];
  /** What a person reads about this picture. */
  text: string;
}

/** What is odd about images, by id, in the order of the run. Others are absent. */
export type Oddities = ReadonlyMap<string, readonly Oddity[]>;

/** The pictures are read and decoded this many at once, and written down after this many. */
const AT_ONCE = 4;
const TOGETHER = 32;
/** Larger files are not looked at. */
const MOST_BYTES = 128 * 2 ** 20;

type PictureLine = Pick<ResultLine, "custom_id" | "files" | "play_money">;

/**
 * Looks at each picture of a run that was not looked at before. Drawings are left out, and so are pictures that cannot be read or
 * were changed by hand. When `signal` aborts, no further picture is looked at, and what was found stays. Throws `SAVE_FAILED`.
 */
export async function lookAtPictures(
  dir: string,
  lines: readonly PictureLine[],
  { clock, signal, onLook }: { clock: Clock; signal: AbortSignal; onLook?: (text: string) => void },
): Promise<void> {
  const looks = readLooks(dir);
  const left = new Map<string, ResultFile>();
  for (const { file } of picturesOf(lines)) if (!looks.has(file.sha256)) left.set(file.sha256, file);
  if (left.size === 0) return;
  const { Decoding } = await import("../imaging/decoding.ts");
  const { look } = await import("../imaging/look.ts");
  const decoding = new Decoding();
  const queue = new PQueue({ concurrency: AT_ONCE });
  const files = [...left.values()];
  for (let at = 0; at < files.length && !signal.aborted; at += TOGETHER) {
    onLook?.(`looking at the pictures (${at} of ${files.length})`);
    const found = await queue.addAll(
      files.slice(at, at + TOGETHER).map(({ path, sha256 }) => async () => {
        if (signal.aborted) return [];
        const read = await readFacts(join(dir, path), MOST_BYTES, dir).catch(() => null);
        if (read?.sha256 !== sha256) return [];
        const whole = read.bytes <= MOST_BYTES ? await look(read.head, decoding) : null;
        return [{ sha256, rules: RULES, look: whole }];
      }),
    );
    if (found.flat().length > 0) await appendToJournal(join(dir, CHECKS_FILE), found.flat(), clock);
  }
}

/** Returns what is odd about the pictures of a run, of those that were looked at. */
export function findOddities(
  dir: string,
  lines: readonly PictureLine[],
  input: { get(id: string): Pick<InputLine, "background"> | undefined },
): Oddities {
  const looks = readLooks(dir);
  const seen = picturesOf(lines).flatMap(({ id, file }) => {
    const look = looks.get(file.sha256);
    return look ? [{ id, look, isAskedClear: input.get(id)?.background === "transparent" }] : [];
  });
  const shown = seen.filter(({ look }) => !look.flat);
  const sameAs = new Map(similar(shown.map(({ look }) => look)).map(([i, j]) => [shown[i], shown[j]?.id]));
  const found = new Map<string, Oddity[]>();
  for (const picture of seen) {
    const { id, look, isAskedClear } = picture;
    const other = sameAs.get(picture);
    const odd: Oddity[] = [];
    if (look.flat) odd.push({ kind: "one flat colour", text: "one flat colour" });
    if (look.bars !== null) odd.push({ kind: "bars", text: barsText(look.bars) });
    if (isAskedClear && !look.transparent)
      odd.push({ kind: "not transparent", text: "nothing of it is transparent, which was asked for" });
    if (other !== undefined) odd.push({ kind: "nearly the same", text: `nearly the same as ${other}` });
    if (odd.length > 0) found.set(id, [...(found.get(id) ?? []), ...odd]);
  }
  return found;
}

function barsText({ sides, share }: NonNullable<Look["bars"]>): string {
  const length = sides === "left and right" ? "width" : "height";
  return `bars at ${sides}, each ${Math.round(share * 100)}% of the ${length}`;
}

/** Says how many images look odd, and in what; null for none. */
export function oddNote(found: Oddities): string | null {
  if (found.size === 0) return null;
  const kinds = ODDITIES.flatMap((kind) => {
    const count = [...found.values()].filter((odd) => odd.some((each) => each.kind === kind)).length;
    return count === 0 ? [] : [`${kind} (${count})`];
  });
  return `${found.size === 1 ? "1 image looks" : `${found.size} images look`} odd: ${kinds.join(", ")}`;
}

/** Reads what pictures look like, by SHA-256. A damaged line is left out, and its picture is looked at again. */
function readLooks(dir: string): Map<string, Look | null> {
  const found = new Map<string, Look | null>();
  for (const text of readJournal(join(dir, CHECKS_FILE))) {
    const line = readJsonLine(text, lineSchema);
    if (line !== null) found.set(line.sha256, line.look);
  }
  return found;
}

/** The pictures in `images/` that were not drawn by this program. */
function picturesOf(lines: readonly PictureLine[]): { id: string; file: ResultFile }[] {
  return lines.flatMap(({ custom_id: id, files, play_money: isPlay }) =>
    isPlay
      ? []
      : files
          .filter(({ entry, path }) => entry === undefined && isImagePath(path))
          .map((file) => ({ id, file })),
  );
}

/** Hashes of nearly the same picture differ in at most this many of their 64 bits. */
const MOST_BITS = 4;
/** Drawings on an empty ground have few bits that differ: the colours of their parts must be the same within this, too. */
const MOST_COLOUR = 20;

/** Returns pairs of indices: a picture, and the first one before it that is nearly the same. Compares 10,000 in half a second. */
function similar(looks: readonly Look[]): [index: number, before: number][] {
  // Two halves of a hash: whole numbers of 64 bits are slow.
  const high = Int32Array.from(looks, ({ dhash }) => Number.parseInt(dhash.slice(0, 8), 16) | 0);
  const low = Int32Array.from(looks, ({ dhash }) => Number.parseInt(dhash.slice(8), 16) | 0);
  const colours = looks.map((look) => Buffer.from(look.colours, "base64"));
  const found: [number, number][] = [];
  for (let i = 1; i < looks.length; i++) {
    const [ownHigh = 0, ownLow = 0] = [high[i], low[i]];
    for (let j = 0; j < i; j++) {
      const bits = bitCount(ownHigh ^ (high[j] ?? 0));
      if (bits > MOST_BITS || bits + bitCount(ownLow ^ (low[j] ?? 0)) > MOST_BITS) continue;
      if (!areClose(colours[i], colours[j])) continue;
      found.push([i, j]);
      break;
    }
  }
  return found;
}

/** The number of bits of a 32-bit number that are set. */
function bitCount(bits: number): number {
  let n = bits - ((bits >>> 1) & 0x55555555);
  n = (n & 0x33333333) + ((n >>> 2) & 0x33333333);
  return Math.imul((n + (n >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

function areClose(a: Buffer = Buffer.alloc(0), b: Buffer = Buffer.alloc(0)): boolean {
  for (let i = 0; i < a.length; i++) if (Math.abs((a[i] ?? 0) - (b[i] ?? 0)) > MOST_COLOUR) return false;
  return true;
}
