import { existsSync } from "node:fs";
import { tempDir } from "./temp-dir.ts";

const IN_MEMORY = "/dev/shm";

/** A new directory for what commits often and need not survive: in memory where the system has such a place. */
export function memoryDir(): Promise<string> {
  return tempDir(undefined, existsSync(IN_MEMORY) ? IN_MEMORY : undefined);
}
