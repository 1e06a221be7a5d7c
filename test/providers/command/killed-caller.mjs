// Asks a program for an image, as a service does, and waits to be killed: node killed-caller.mjs SCRIPT

import { DEFAULT_OPTIONS } from "../../../build/domain/ports/image-provider.js";
import { systemClock } from "../../../build/kernel/clock.js";
import { createCommandAdapter } from "../../../build/providers/command/provider.js";

const entry = { argv: [process.execPath, process.argv[2]], env: [], timeoutSeconds: 600 };
const adapter = createCommandAdapter(entry, {
  clock: systemClock,
  secret: (name) => process.env[name] ?? null,
});
await adapter.generate(
  {
    model: "m",
    prompt: "a red fox",
    outputIndex: 0,
    options: DEFAULT_OPTIONS,
    pixels: { widthPx: 1024, heightPx: 1024 },
    references: [],
    attempt: 1,
    seed: 1,
    origin: "batch",
  },
  new AbortController().signal,
  () => {},
);
