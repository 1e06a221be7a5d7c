import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, statfsSync, statSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { builtModules } from "../modules.mjs";
import { lendPostgres } from "./postgres-lender.ts";
import { postgresBin } from "./postgres-server.ts";

/** Names the directory, in the environment, in which all directories of a run of the tests are. */
export const SUITE_ROOT = "IMGBATCH_TEST_ROOT";

const REPOSITORY = resolve(import.meta.dirname, "../..");

/** Files in memory, which cost no wait for a disk. Containers often have little of it. */
const IN_MEMORY = "/dev/shm";
const ENOUGH_BYTES = 2 * 1024 ** 3;

/** Where the directory of a run is made: in memory, unless there is too little or `TMPDIR` names another place. */
function parentDirectory(): string {
  if (process.env.TMPDIR || !existsSync(IN_MEMORY)) return tmpdir();
  const { bavail, bsize } = statfsSync(IN_MEMORY);
  return bavail * bsize >= ENOUGH_BYTES ? IN_MEMORY : tmpdir();
}

/** The files that tests run in processes of their own, by the script that makes them: the program, and modules of it. */
const built = () => ({
  build: ["dist/main.cjs"],
  modules: [...builtModules()].map((name) => join("build", `${name}.js`)),
});

/** Builds what is missing or older than its sources. */
function buildWhenStale(): void {
  const sources = readdirSync(join(REPOSITORY, "src"), { recursive: true, encoding: "utf8" });
  const settings = ["tsconfig.json", "package.json", "src"];
  const paths = [...settings, ...sources.map((name) => join("src", name))];
  const newest = Math.max(...paths.map((path) => modifiedAt(join(REPOSITORY, path))));
  for (const [script, files] of Object.entries(built())) {
    if (files.every((file) => newest < modifiedAt(join(REPOSITORY, file)))) continue;
    execFileSync("npm", ["run", "--silent", script], { cwd: REPOSITORY, stdio: "inherit" });
  }
}

/** Milliseconds; 0 for a file that does not exist. A directory changes when an entry is added or removed. */
function modifiedAt(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

/**
 * One directory for everything that a run writes. Each test's part is searched for secrets and removed by the test;
 * what is left in the end, by tests that were killed or children that outlived them, is searched here.
 */
export default function setup(): () => Promise<void> {
  buildWhenStale();
  // Node reads all of these certificates at each start, which takes longer than the rest of it. Only npm uses them, when a
  // long run installs the package.
  if (!process.env.IMGBATCH_SOAK) delete process.env.NODE_EXTRA_CA_CERTS;
  const root = mkdtempSync(join(parentDirectory(), "imgbatch-suite-"));
  process.env[SUITE_ROOT] = root;
  if (postgresBin() === null)
    process.stderr.write("There is no PostgreSQL here: the tests that need it are skipped.\n");
  const takeBack = lendPostgres(root, parentDirectory());
  return async () => {
    await takeBack();
    const { takeFindings, watchDirectory } = await import("./secrets.ts");
    await watchDirectory(root);
    await rm(root, { recursive: true, force: true, maxRetries: 3 });
    const findings = takeFindings();
    if (findings.length > 0) throw new Error(`secrets were left behind:\n${findings.join("\n")}`);
  };
}
