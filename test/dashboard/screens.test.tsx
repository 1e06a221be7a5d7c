import { render } from "ink";
import stringWidth from "string-width";
import { describe, expect, it } from "vitest";
import { Dashboard } from "../../src/dashboard/components/dashboard.tsx";
import { FrameStream } from "../../src/dashboard/show.tsx";
import type { DashboardState } from "../../src/dashboard/state.ts";
import { applied, batchRow, itemRow, NOW, press, viewOf } from "./facts.ts";

/** The screen as a person sees it: lines without colours. */
function linesOf(state: DashboardState): string[] {
  let last = "";
  const stdout = new FrameStream(state.size.columns, (frame) => {
    last = frame;
  });
  const options = { stdout: stdout as never, debug: true, patchConsole: false, exitOnCtrlC: false };
  const ink = render(<Dashboard state={state} />, options);
  const screen = last;
  // In a CI system Ink writes one more frame, an empty one, when it ends.
  ink.unmount();
  // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are escape sequences
  const plain = screen.replace(/\x1b\[[0-9;]*m/g, "");
  // With colours, blanks stay at the ends of lines.
  return plain.replace(/ +$/gm, "").split("\n");
}

const NAME =
  "一只在雪地里奔跑的红色狐狸和它的许多朋友们在月光下的森林里一起唱歌跳舞直到天亮为止的很长很长的故事啊啊啊啊啊啊";

function busy(size: { columns: number; rows: number }): DashboardState {
  const rows = [
    batchRow(1, { name: NAME }),
    batchRow(2, { name: "emoji 🦊🦊 👩‍👩‍👧‍👦", status: "queued", successCount: 0, failCount: 0 }),
    batchRow(3, { status: "completed", successCount: 9, failCount: 1 }),
    batchRow(4, {
      status: "failed",
      error: { code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", message: "no provider" },
    }),
    ...Array.from({ length: 60 }, (_, n) => batchRow(n + 5, { status: "completed", failCount: 0 })),
  ];
  return applied(
    viewOf(rows, size),
    {
      type: "service",
      facts: {
        url: "http://127.0.0.1:8787",
        dataDirectory: "/data",
        providers: "procedural",
        startedAtMs: NOW - 64_000,
      },
    },
    { type: "vitals", vitals: { balanceMicroUsd: 999_123_400, heldMicroUsd: 804_000, freeDiskBytes: 79e9 } },
    { type: "vitals", vitals: { waitingItems: 312, runningItems: 2, concurrency: 2 } },
    { type: "images", count: 4, atMs: NOW },
    {
      type: "request",
      line: {
        atMs: NOW,
        method: "POST",
        path: "/v1/images/batches",
        status: 200,
        durationMs: 4,
        key: "imgb_abcdefg",
      },
    },
    { type: "log", line: { atMs: NOW, level: "error", text: "image could not be stored; trying again" } },
  );
}

/** The same with an upstream that pauses for one model, and one without a key. */
function troubled(state: DashboardState): DashboardState {
  const at = new Date(NOW);
  at.setHours(14, 32, 0);
  const limited = {
    provider: "google",
    model: "gemini-3-pro-image",
    message: "google has no more quota.",
    untilMs: +at,
  };
  const keyless = { provider: "own", model: null, message: "OWN_KEY\nis not set", untilMs: null };
  return applied(state, { type: "vitals", vitals: { troubles: [limited, keyless] } });
}

const SIZES = [
  { columns: 80, rows: 24 },
  { columns: 160, rows: 40 },
  { columns: 40, rows: 12 },
  { columns: 60, rows: 10 },
];

describe("the screens", () => {
  it.each(SIZES)("[VIEW-1] at $columns×$rows every screen fits the window, in width and height", (size) => {
    const main = busy(size);
    const detail = applied(press(main, "enter").state, {
      type: "detail",
      detail: {
        batchId: batchRow(1).id,
        items: [itemRow(1), itemRow(2, { customId: NAME, prompt: NAME, status: "failed", error: NAME })],
        history: [{ status: "queued", atMs: NOW }],
      },
    });
    const picture = {
      batchId: "b",
      customId: "i1",
      widthPx: 10,
      heightPx: 9,
      rgb: new Uint8Array(270),
      caption: "1K",
    };
    const states = [
      main,
      detail,
      applied(press(detail, "v").state, { type: "picture", picture }),
      press(main, "?").state,
      press(main, "c").state,
      press(main, "/", "x", "y").state,
      troubled(main),
      viewOf([], size),
    ];
    for (const state of states) {
      const lines = linesOf(state);
      expect(lines.length).toBeLessThanOrEqual(size.rows);
      for (const line of lines) expect(stringWidth(line)).toBeLessThanOrEqual(size.columns);
    }
  });

  it("the first screen says what it is about: service, money, batches, queue, requests, errors, keys", () => {
    const text = linesOf(busy({ columns: 80, rows: 24 })).join("\n");
    for (const words of [
      "http://127.0.0.1:8787",
      "procedural",
      "up 64 s",
      "balance $999.12",
      "79.0 GB free",
      "waiting 312",
      "running 2 of 2 workers",
      "POST   /v1/images/batches",
      "imgb_abcdefg",
      "error",
      "image could not be stored",
      "? help",
      "q quit",
    ]) {
      expect(text).toContain(words);
    }
  });

  it("one line names the providers that cannot be used, and costs the batches one line", () => {
    const well = busy({ columns: 80, rows: 24 });
    const lines = linesOf(troubled(well));
    expect(lines[2]).toBe("! google (gemini-3-pro-image) cooling until 14:32: has no more quota. · own dis…");
    const batches = (shown: string[]) => shown.filter((line) => /^. (batch |emoji)/.test(line)).length;
    expect(lines).toHaveLength(linesOf(well).length);
    expect(lines.at(-1)).toBe(linesOf(well).at(-1));
    const after = applied(troubled(well), { type: "vitals", vitals: { troubles: [] } });
    expect(linesOf(after)).toEqual(linesOf(well));
    expect(batches(lines)).toBe(batches(linesOf(well)) - 1);
    const wide = linesOf(troubled(busy({ columns: 160, rows: 50 })))[2];
    expect(wide).toContain("has no more quota. · own disabled: OWN_KEY\\x0ais not set");
  });

  it("columns stay under their titles beside wide names", () => {
    const lines = linesOf(busy({ columns: 80, rows: 24 }));
    const title = lines.find((line) => line.includes("STATUS")) ?? "";
    const at = stringWidth(title.slice(0, title.indexOf("STATUS")));
    for (const mark of ["» running", "· queued", "! completed", "× failed"]) {
      const { state } = press(busy({ columns: 80, rows: 24 }), "s", "s", "s");
      const line = [...lines, ...linesOf(state)].find((l) => l.includes(mark)) ?? "";
      if (line !== "") expect(stringWidth(line.slice(0, line.indexOf(mark)))).toBe(at);
    }
  });

  it("a batch with failures never looks like a plain success", () => {
    const row = batchRow(3, { status: "completed", successCount: 9, failCount: 1 });
    const text = linesOf(viewOf([row])).join("\n");
    expect(text).toContain("! completed");
    expect(linesOf(viewOf([{ ...row, failCount: 0 }])).join("\n")).toContain("✓ completed");
    expect(linesOf(viewOf([{ ...row, successCount: 0, failCount: 10 }])).join("\n")).toContain("× no images");
  });

  it("text of others cannot move the cursor, wherever it is shown", () => {
    const evil = "\x1b[2Jevil\x07\r\nname";
    const row = batchRow(1, {
      name: evil,
      model: evil,
      status: "failed",
      error: { code: "X", message: evil },
    });
    const log = { type: "log" as const, line: { atMs: NOW, level: "error" as const, text: evil } };
    const main = applied(viewOf([row]), log);
    const items = [
      itemRow(1, { customId: evil, prompt: evil }),
      itemRow(2, { status: "failed", error: evil }),
    ];
    const open = press(main, "enter").state;
    const detail = applied(open, { type: "detail", detail: { batchId: row.id, items, history: null } });
    const states = [
      main,
      detail,
      press(detail, "v").state,
      press(main, "d").state,
      applied(main, { type: "message", text: evil }),
    ];
    for (const state of states) {
      const lines = linesOf(state);
      expect(lines.length).toBeLessThanOrEqual(24);
      expect(lines.join("")).toContain("evil");
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these must not be there
      expect(lines.join("")).not.toMatch(/[\x00-\x1f\x7f]/);
    }
  });

  it("a bar stands beside its name in every window, and parts with nothing to show go", () => {
    const shown = (columns: number) =>
      linesOf(viewOf([batchRow(1, { name: "pets" })], { columns, rows: 30 }));
    for (const columns of [40, 80, 200]) {
      const lines = shown(columns);
      expect(lines.join("\n")).toMatch(/^▸ pets {2,21}█+░*/m);
      expect(lines.join("\n")).not.toMatch(/Requests|Errors|Log/);
    }
  });

  it("a narrow window keeps the way out, a view without requests has more room for batches", () => {
    const narrow = linesOf(busy({ columns: 40, rows: 12 })).at(-1);
    expect(narrow).toMatch(/\? help q quit$/);
    const state = busy({ columns: 80, rows: 24 });
    const quiet = linesOf({ ...state, abilities: { ...state.abilities, ownsService: false } });
    expect(quiet.join("\n")).not.toMatch(/Requests|Errors/);
    expect(quiet.filter((line) => line.includes("batch ")).length).toBeGreaterThan(14);
  });

  it("what a service elsewhere does not tell or cannot do is left out", () => {
    const remote = { ownsService: false, openConsole: false };
    const row = batchRow(1, { actualCostMicroUsd: null });
    const view = { ...viewOf([row]), abilities: remote };
    const items = [itemRow(1, { sizeBytes: null, costMicroUsd: null })];
    const event = { type: "detail" as const, detail: { batchId: row.id, items, history: null } };
    const detail = linesOf(applied(press(view, "enter").state, event));
    for (const line of detail) expect(stringWidth(line)).toBeLessThanOrEqual(80);
    const text = detail.join("\n");
    expect(text).toContain("estimated $0.34");
    expect(text).not.toMatch(/SIZE|COST|cost|–/);
    const help = linesOf(press(view, "?").state).join("\n");
    expect(help).toContain("quit; the batches go on");
    expect(help).not.toMatch(/retry|pause|web|log|sizes/);
    const all = linesOf(press(viewOf([row]), "?").state).join("\n");
    expect(all).toMatch(/retry.*folder.*web console.*pause.*log.*next start.*✓ done.*· waiting$/ms);
  });

  it("an empty service tells how to begin", () => {
    expect(linesOf(viewOf([])).join("\n")).toContain("imgbatch submit prompts.jsonl");
    const submitCommand = "imgbatch submit prompts.jsonl --data 'my data'";
    const facts = { url: "u", dataDirectory: "d", providers: null, startedAtMs: NOW, submitCommand };
    const elsewhere = applied(viewOf([]), { type: "service", facts });
    expect(linesOf(elsewhere).join("\n")).toContain(submitCommand);
    const narrow = linesOf(applied(elsewhere, { type: "resize", columns: 45, rows: 24 })).join("\n");
    expect(narrow.replace(/ \\\n +/, " ")).toContain(submitCommand);
  });
});

it("a waiting batch is marked in the list, and its details say for which provider, why and until when", () => {
  const untilMs = new Date(NOW).setHours(14, 32, 10);
  const waiting = {
    code: "PROVIDER_UNREACHABLE",
    message: "google: could not be reached.",
    untilMs,
    said: null,
  };
  const view = viewOf([batchRow(1, { waiting }), batchRow(2)]);
  const { state } = press(view, "down", "enter");
  expect(linesOf(view).filter((line) => line.includes("! waiting"))).toHaveLength(1);
  const detail = linesOf(state);
  expect(detail[1]).toMatch(/^! waiting · /);
  expect(detail).toContain("waiting for google: could not be reached; next try at 14:32:10");
  expect(detail.length).toBeLessThanOrEqual(24);
});
