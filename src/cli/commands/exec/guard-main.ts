/** The program of the guard: reads lines, the last of which holds, until the other end of its standard input is closed. */
import { rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import { systemClock } from "../../../kernel/clock.ts";
import { endDescendants } from "./end-descendants.ts";
import type { Leftovers } from "./guard.ts";

// The end of what it watches over must not be its own end.
for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(name, () => {});

let left: Leftovers | null = null;
for await (const line of createInterface({ input: process.stdin })) left = JSON.parse(line);
if (left !== null) {
  const { mark, directory, child } = left;
  if (child !== undefined) await endDescendants({ mark, ...child }, systemClock);
  if (directory !== null) await rm(directory, { recursive: true, force: true, maxRetries: 3 });
}
