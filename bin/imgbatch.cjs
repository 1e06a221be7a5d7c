#!/usr/bin/env node
// Loads the program of `dist`, whose files find each other by `require`. Node's own loader would compile them at each start, which takes
// most of it. Here each keeps its compiled code in `dist/cache` from the end of the first run that loads it. It is made by
// and for one version of Node; without it, as where nobody may write to `dist`, a start takes longer.
const { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } = require("node:fs");
const { wrap } = require("node:module");
const { join } = require("node:path");
const { Script } = require("node:vm");

const DIST = join(__dirname, "../dist");
const CACHE = join(DIST, "cache", `${process.version}-${process.arch}`);

const modules = new Map();
const withoutCache = [];

function load(name) {
  let module = modules.get(name);
  if (module === undefined) {
    module = { exports: {} };
    modules.set(name, module);
    const filename = join(DIST, name);
    const script = compile(name, filename);
    script.runInThisContext()(module.exports, requireFrom, module, filename, DIST);
  }
  return module.exports;
}

function requireFrom(id) {
  return id.startsWith("./") ? load(id.slice(2)) : require(id);
}

function compile(name, filename) {
  let cachedData;
  try {
    cachedData = readFileSync(join(CACHE, name));
  } catch {
    // The end of this process makes it.
  }
  // V8 ignores the code of another version or with other flags.
  const script = new Script(wrap(readFileSync(filename, "utf8")), { filename, cachedData });
  if (cachedData === undefined) withoutCache.push({ name, script });
  return script;
}

process.on("exit", () => {
  try {
    if (withoutCache.length > 0) mkdirSync(CACHE, { recursive: true });
    for (const { name, script } of withoutCache) keep(join(CACHE, name), script);
  } catch {
    // Nobody misses it but for the time.
  }
});

/** Other processes may read or write the same file now, and the machine may fail. */
function keep(file, script) {
  const draft = `${file}.${process.pid}`;
  const descriptor = openSync(draft, "w");
  writeSync(descriptor, script.createCachedData());
  fsyncSync(descriptor);
  closeSync(descriptor);
  renameSync(draft, file);
}

load("main.cjs");
