// Prints every rule with the test files whose test names cite it.
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const TEST = resolve(import.meta.dirname, "..");
const files = readdirSync(TEST, { recursive: true, encoding: "utf8" })
  .filter((name) => /\.test\.tsx?$/.test(name) && !name.includes("node_modules"))
  .sort();
const texts = new Map(files.map((file) => [file, readFileSync(join(TEST, file), "utf8")]));

for (const [, id, sentence] of readFileSync(join(TEST, "RULES.md"), "utf8").matchAll(
  /^\| ([A-Z]+-\d+) \| (.*) \|$/gm,
)) {
  const proofs = files.filter((file) => texts.get(file)?.includes(`[${id}]`));
  process.stdout.write(`${id}  ${sentence}\n${proofs.map((file) => `    test/${file}\n`).join("")}`);
}
