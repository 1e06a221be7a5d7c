import { readdir, readFile } from "node:fs/promises";
import { basename, join, relative } from "node:path";
import { expect } from "vitest";
import { findSecrets, findSecretsInFile } from "./find-secrets.ts";

/**
 * The watch over secrets: whatever the tests of a file make the program write (files, output of processes, answers,
 * log lines) is searched for API keys, and the search's findings fail the file. See `setup.ts`.
 */
const findings: string[] = [];
const known = new Set<string>();
const allowed = new Set<string>();
const keyFiles = new Set<string>();

/** Shorter texts are no secrets but words such as `wrong`, which stand everywhere. */
const MIN_SECRET_CHARS = 12;

/** Names another secret to search for, one that does not look like an API key of ours. */
export function watchSecret(secret: string | undefined): void {
  if (secret !== undefined && secret.length >= MIN_SECRET_CHARS) known.add(secret);
}

/** Watches over what an environment holds by names that are those of secrets. */
export function watchEnvironment(env: NodeJS.ProcessEnv): void {
  for (const [name, value] of Object.entries(env)) {
    if (/(^|_)(API_?)?(KEY|TOKEN|SECRET)$/.test(name)) watchSecret(value);
  }
}

/** A file that the test itself put a secret into; nothing else may hold one. */
export function allowKeyFile(path: string): void {
  keyFiles.add(path);
}

/** For a test whose subject is a caller who writes a key into a prompt or such: that stays what they wrote. */
export function allowSecret(secret: string): void {
  allowed.add(secret);
}

/** Looks for secrets in text that the program gave to somebody. */
export function watchText(text: string | Uint8Array, place: string): void {
  note(findSecrets(cleaned(Buffer.from(text as string)), known), place);
}

/** Looks for secrets in every file below a directory. */
export async function watchDirectory(directory: string): Promise<void> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || mayHoldKey(path)) continue;
    const bytes = await readFile(path).catch(() => Buffer.alloc(0));
    note(await findSecretsInFile(cleaned(bytes), known), `the file ${relative(directory, path)}`);
  }
}

/** Forgets the names that the test file before this one gave; test files share a process. */
export function forgetSecrets(): void {
  for (const names of [known, allowed, keyFiles]) names.clear();
}

/** The secrets found since the last call. */
export function takeFindings(): string[] {
  return findings.splice(0);
}

/** The one file of a data directory that has a key in it, and what writing it leaves when it is killed. */
function mayHoldKey(path: string): boolean {
  return keyFiles.has(path) || /^(\.credentials\.json\..+\.partial|credentials\.json)$/.test(basename(path));
}

/** Without what is allowed: overwritten, so that offsets stay. */
function cleaned(bytes: Buffer): Buffer {
  let copy: Buffer | null = null;
  for (const secret of allowed) {
    for (let at = bytes.indexOf(secret); at >= 0; at = bytes.indexOf(secret, at + 1)) {
      copy ??= Buffer.from(bytes);
      copy.fill(0, at, at + secret.length);
    }
  }
  return copy ?? bytes;
}

function note(found: readonly { form: string; offset: number }[], place: string): void {
  const test = expect.getState().currentTestName ?? "no test";
  for (const { form, offset } of found) {
    findings.push(`${place}, byte ${offset}: a secret (${form}); ${test}`);
  }
}
