/** The program of the guard. Reads lines until its standard input closes, then cleans up as the last line states. */
import { rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import { systemClock } from "../kernel/clock.ts";
import { endDescendants, type Leftovers } from "./guard.ts";

// A signal that ends the watched process must not end the guard.
for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(name, () => {});

async function main(): Promise<void> {
  let left: readonly Leftovers[] = [];
  for await (const line of createInterface({ input: process.stdin })) left = JSON.parse(line);
  await Promise.all(left.map(cleanUp));
}

async function cleanUp({ mark, directory, child }: Leftovers): Promise<void> {
  await endDescendants({ mark, group: null, ...child }, systemClock);
  if (directory !== null) await rm(directory, { recursive: true, force: true, maxRetries: 3 });
}

void main();
