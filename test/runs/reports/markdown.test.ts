import { describe, expect, it } from "vitest";
import { toMarkdown } from "../../../src/runs/reports/write-reports.ts";
import { HOSTILE, reportOf } from "../../support/report.ts";

const error = { code: "PROVIDER_TIMEOUT", message: "too slow" };

describe("the summary in Markdown", () => {
  it("tells how it went, then the failures with the command that tries them again, then the images", () => {
    const text = toMarkdown(
      reportOf([
        { id: "fox", prompt: "a fox" },
        { id: "owl", prompt: "an owl", error },
      ]),
    );
    expect(text).toContain("### ⚠️ out: 1 image, **1 failed**");
    expect(text).toContain("$0.03");
    expect(text).toContain("| owl | PROVIDER_TIMEOUT | too slow | an owl |");
    expect(text).toContain("```sh\nimgbatch retry out\n```");
    expect(text).toContain("| [fox](<out/images/fox.png>) |");
    expect(text.indexOf("too slow")).toBeLessThan(text.indexOf("a fox"));
  });

  it("says success and total failure at a glance, and nothing of a retry where there is none", () => {
    const good = toMarkdown(reportOf([{ id: "fox" }]));
    expect(good).toContain("### ✅ out: 1 image\n");
    expect(good).not.toContain("retry");
    expect(toMarkdown(reportOf([{ id: "fox", error }]))).toContain("### ❌ out: 0 images, **1 failed**");
  });

  it("shows at most 50 failures and 100 images, and counts the rest", () => {
    const failures = Array.from({ length: 60 }, (_, i) => ({ id: `bad${i}`, error }));
    const images = Array.from({ length: 130 }, (_, i) => ({ id: `good${i}` }));
    const text = toMarkdown(reportOf([...images, ...failures]));
    expect(text.match(/^\| bad/gm)).toHaveLength(50);
    expect(text.match(/^\| \[good/gm)).toHaveLength(100);
    expect(text).toContain("… and 10 more in `results.jsonl`.");
    expect(text).toContain("… and 30 more in `results.jsonl`.");
  });

  it("lists at most 20 images with notes, and none without", () => {
    const noted = Array.from({ length: 23 }, (_, i) => ({
      id: `i${i}`,
      facts: { notes: ["is a JPEG", "#1"] },
    }));
    const text = toMarkdown(reportOf([...noted, { id: "plain" }]));
    expect(text.match(/^\| i\d+ \| is a JPEG; /gm)).toHaveLength(20);
    expect(text).toContain("… and 3 more in `results.jsonl`.");
    expect(toMarkdown(reportOf([{ id: "plain" }]))).not.toContain("notes");
  });

  it("no prompt breaks its cell, or becomes a link, a tag, a mention or a heading", () => {
    const text = toMarkdown(reportOf(HOSTILE.map((prompt, i) => ({ id: `i${i}`, prompt }))));
    const rows = text.split("\n").filter((line) => line.startsWith("| [i"));
    expect(text).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
    expect(rows).toHaveLength(HOSTILE.length);
    for (const row of rows) {
      const cells = row.split("|").slice(1, -1);
      expect(cells).toHaveLength(3);
      expect(cells[2]).not.toMatch(/[<>@`[\]*]|(?<![a-z0-9])_|(?<!&)#(?=\d)/i);
      expect(row.length).toBeLessThan(1200);
    }
  });
});
