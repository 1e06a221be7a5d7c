// Moves the clock of a program, with `node --import`: the file that MOVED_CLOCK names holds by how many milliseconds.
import { readFileSync } from "node:fs";

const realNow = Date.now.bind(Date);
const LOOK_EVERY_MS = 10;
let offsetMs = 0;
let lookedAt = Number.NEGATIVE_INFINITY;

Date.now = () => {
  const now = realNow();
  if (now - lookedAt >= LOOK_EVERY_MS) {
    lookedAt = now;
    offsetMs = Number(readFileSync(process.env.MOVED_CLOCK, "utf8"));
  }
  return now + offsetMs;
};
