#!/usr/bin/env node
// Loads the program of `dist`, whose files find each other by `require`. Node's own loader would compile them at each start,
// which takes most of it. Here each keeps its compiled code in `dist/cache` from the end of the first run that loads it. It is
// made by and for one version of Node; without it, as where nobody may write to `dist`, a start takes longer.
const { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } = require("node:fs");
const { wrap } = require("node:module");
const { join } = require("node:path");
const { Script } = require("node:vm");

const DIST = join(__dirname, "../dist");
const ENTRY = "main.cjs";
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

/** The engine takes compiled code of any text that is as long. So code is kept only of files with a hash in their names. */
function compile(name, filename) {
  const text = wrap(readFileSync(filename, "latin1"));
  if (name === ENTRY) return new Script(text, { filename });
  let cachedData;
  try {
    cachedData = readFileSync(join(CACHE, name));
  } catch {
    // The end of this process makes it.
  }
  // The engine ignores code that another version made, or that was made under other flags. Who changes flags hears of it.
  process.emit("compile");
  const script = new Script(text, { filename, cachedData });
  process.emit("compiled");
  if (cachedData === undefined) withoutCache.push({ name, script });
  return script;
}

process.on("exit", () => {
  try {
    if (withoutCache.length === 0) return;
    process.emit("compile");
    mkdirSync(CACHE, { recursive: true });
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

load(ENTRY);
