import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import sharp, { type Sharp } from "sharp";
import { expect, it } from "vitest";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { findOddities, lookAtPictures, oddNote } from "../../src/runs/checks.ts";
import { CHECKS_FILE } from "../../src/runs/directory/names.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { tempDir } from "../support/temp-dir.ts";

const clock = new InstantClock();
const { signal } = new AbortController();

/** A picture with a disc in one of nine places. */
const disc = (place: number, ground = "#dddddd", colour = "#203060") =>
  sharp(
    Buffer.from(
      `<svg width="300" height="300"><rect width="300" height="300" fill="${ground}"/><circle cx="${50 + 100 * (place % 3)}" cy="${50 + 100 * Math.floor(place / 3)}" r="45" fill="${colour}"/></svg>`,
    ),
  );
const flat = (background: string) => sharp({ create: { width: 300, height: 200, channels: 3, background } });

async function runOf(images: Record<string, Sharp | Buffer>, facts: { play_money?: true } = {}) {
  const dir = await tempDir();
  await mkdir(join(dir, "images"));
  const lines = [];
  for (const [id, image] of Object.entries(images)) {
    const bytes = Buffer.isBuffer(image) ? image : await image.png().toBuffer();
    const path = `images/${id}.png`;
    await writeFile(join(dir, path), bytes);
    const file = { path, sha256: sha256Hex(bytes), bytes: bytes.length, mime_type: "image/png" };
    lines.push({ custom_id: id, files: [{ ...file, width: null, height: null }], ...facts });
  }
  const saved = async () =>
    (await readFile(join(dir, CHECKS_FILE), "utf8").catch(() => "")).split("\n").filter(Boolean);
  return { dir, lines, saved };
}

const asked = new Map([["owl", { background: "transparent" as const }]]);
const texts = (found: ReturnType<typeof findOddities>) =>
  Object.fromEntries([...found].map(([id, odd]) => [id, odd.map(({ text }) => text).join("; ")]));

it("[REV-3] a run's pictures are looked at once each, and what is odd is said of each and in one line", async () => {
  const run = await runOf({
    fox: disc(0),
    blank: flat("#ffffff"),
    empty: flat("#000000"),
    owl: disc(5),
    hen: disc(0).blur(1),
    cat: disc(8),
  });
  await lookAtPictures(run.dir, run.lines, { clock, signal });
  expect(await run.saved()).toHaveLength(6);
  const found = findOddities(run.dir, run.lines, asked);
  expect(texts(found)).toEqual({
    blank: "one flat colour",
    empty: "one flat colour",
    owl: "nothing of it is transparent, which was asked for",
    hen: "nearly the same as fox",
  });
  expect(oddNote(found)).toBe(
    "4 images look odd: one flat colour (2), not transparent (1), nearly the same (1)",
  );
  const before = await run.saved();
  const looks: string[] = [];
  await lookAtPictures(run.dir, run.lines, { clock, signal, onLook: (text) => looks.push(text) });
  expect([looks, await run.saved()]).toEqual([[], before]);
});

it("drawings of the same form in other places, and in other colours, are not nearly the same", async () => {
  const { dir, lines } = await runOf({
    ...Object.fromEntries([0, 1, 2, 3, 4, 5, 6, 7, 8].map((place) => [`place-${place}`, disc(place)])),
    red: disc(4, "#ffffff", "#cc2020"),
    blue: disc(4, "#ffffff", "#2020cc"),
    square: sharp(
      Buffer.from(
        `<svg width="300" height="300"><rect width="300" height="300" fill="#fff"/><rect x="105" y="105" width="90" height="90" fill="#cc2020"/></svg>`,
      ),
    ),
  });
  await lookAtPictures(dir, lines, { clock, signal });
  const found = texts(findOddities(dir, lines, asked));
  for (const [id, text] of Object.entries(found)) expect(`${id}: ${text}`).toBe("");
});

it("[REV-3] drawings, pictures changed by hand, and bytes that are no picture are left in peace", async () => {
  const drawn = await runOf({ blank: flat("#fff") }, { play_money: true });
  await lookAtPictures(drawn.dir, drawn.lines, { clock, signal });
  expect(await drawn.saved()).toEqual([]);
  expect(findOddities(drawn.dir, drawn.lines, asked).size).toBe(0);

  const run = await runOf({ blank: flat("#fff"), bomb: Buffer.from("no picture") });
  await writeFile(join(run.dir, "images/blank.png"), "another file");
  for (const _ of [1, 2]) await lookAtPictures(run.dir, run.lines, { clock, signal });
  expect(await run.saved()).toHaveLength(1);
  expect(findOddities(run.dir, run.lines, asked).size).toBe(0);
});

it("[REV-3] a kill while a line was written, a damaged line, and a stop lose only that look", async () => {
  const run = await runOf({ blank: flat("#fff"), fox: disc(1) });
  const stopped = AbortSignal.abort();
  await lookAtPictures(run.dir, run.lines, { clock, signal: stopped });
  expect(await run.saved()).toEqual([]);
  await lookAtPictures(run.dir, run.lines, { clock, signal });
  const [first = "", second = ""] = await run.saved();
  for (const text of [`${first}\n${second.slice(0, 40)}`, `{"sha256":1}\n${first}\n`]) {
    await writeFile(join(run.dir, CHECKS_FILE), text);
    await lookAtPictures(run.dir, run.lines, { clock, signal });
    expect((await run.saved()).slice(-2)).toEqual([first, second]);
  }
  expect([...findOddities(run.dir, run.lines, asked).keys()]).toEqual(["blank"]);
});
