import type { Client } from "./client.mjs";
import type { Random } from "./random.mjs";

export function randomStory(
  client: Client,
  story: { keys: readonly string[]; random: Random; clients?: number; prefix: string; pauseMs?: number },
): Promise<void>;
