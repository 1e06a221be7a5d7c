import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { toJunit } from "../../../src/runs/reports/write-reports.ts";
import { CHARACTER } from "../../support/characters.ts";
import { fuzzRuns } from "../../support/fuzz-runs.ts";
import { HOSTILE, reportOf } from "../../support/report.ts";
import { readXml, type XmlElement } from "../../support/xml.ts";

const REFUSED = { code: "SAFETY_BLOCKED", message: "not this one" };

describe("the JUnit report", () => {
  it("[REPORT-6] has a test case for each image, failures with code and message, and what the run cost", () => {
    const report = reportOf([
      { id: "fox", prompt: "a fox" },
      { id: "owl", prompt: "an owl", error: REFUSED },
    ]);
    const suites = readXml(toJunit(report));
    const [suite] = suites.children as [XmlElement];
    expect(suites.attributes).toMatchObject({ tests: "2", failures: "1", errors: "0", time: "30.500" });
    expect(suite.attributes).toMatchObject({ tests: "2", failures: "1", timestamp: "2031-05-06T07:08:39" });
    const properties = suite.children[0]?.children.map(({ attributes }) => [
      attributes.name,
      attributes.value,
    ]);
    expect(properties).toEqual([
      ["directory", "out"],
      ["model", "a-model"],
      ["batch_id", "imgbatch_1"],
      ["cost_usd", "0.0335"],
    ]);
    const cases = suite.children.filter(({ name }) => name === "testcase");
    expect(cases.map(({ attributes }) => [attributes.name, attributes.classname])).toEqual([
      ["fox", "out"],
      ["owl", "out"],
    ]);
    expect(cases[0]?.children[0]?.text).toBe("a fox\n[[ATTACHMENT|out/images/fox.png]]");
    expect(cases[1]?.children).toEqual([
      {
        name: "failure",
        attributes: { message: "SAFETY_BLOCKED: not this one", type: "SAFETY_BLOCKED" },
        children: [],
        text: "SAFETY_BLOCKED: not this one\nan owl",
      },
    ]);
  });

  it("has the notes of an image in the output of its test case", () => {
    const facts = { notes: ["is a JPEG"] };
    const suites = readXml(
      toJunit(
        reportOf([
          { id: "a", facts },
          { id: "b", error: REFUSED, facts },
        ]),
      ),
    );
    const cases = suites.children[0]?.children.filter(({ name }) => name === "testcase") ?? [];
    for (const each of cases) expect(each.children[0]?.text.split("\n")).toContain("is a JPEG");
    expect(cases).toHaveLength(2);
  });

  it("[REPORT-6] has the elements of the schema in its order", () => {
    const [suite] = readXml(toJunit(reportOf([{ id: "a" }]))).children;
    expect(suite?.children.map(({ name }) => name)).toEqual([
      "properties",
      "testcase",
      "system-out",
      "system-err",
    ]);
    const required = [
      "name",
      "timestamp",
      "hostname",
      "tests",
      "failures",
      "errors",
      "time",
      "id",
      "package",
    ];
    expect(Object.keys(suite?.attributes ?? {})).toEqual(expect.arrayContaining(required));
  });

  it("is valid XML whatever prompts, ids and messages hold", () => {
    const texts = fc.oneof(fc.constantFrom(...HOSTILE), fc.string({ unit: CHARACTER, maxLength: 20 }));
    fc.assert(
      fc.property(texts, texts, texts, (id, prompt, message) => {
        const report = reportOf([
          { id, prompt },
          { id: "x", prompt, error: { code: "A", message } },
        ]);
        const [suite] = readXml(toJunit(report)).children;
        expect(suite?.children.filter(({ name }) => name === "testcase")).toHaveLength(2);
      }),
      { numRuns: fuzzRuns(300) },
    );
  });

  it("keeps line breaks of messages", () => {
    const report = reportOf([{ id: "a", error: { code: "A", message: "one\ntwo" } }]);
    const failure = readXml(toJunit(report)).children[0]?.children[1]?.children[0];
    expect(failure?.attributes.message).toBe("A: one\ntwo");
  });
});
