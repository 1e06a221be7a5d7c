#!/usr/bin/env node
// Loads the program of `dist`, whose files find each other by `require`. Node's own loader would compile them at each start,
// which takes most of it. Here each keeps its compiled code in `dist/cache` from the end of the first run that loads it. It is
// made by and for one version and one set of flags of the engine; without it, as where nobody may write to `dist`, a start
// takes longer.
const { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } = require("node:fs");
const { wrap } = require("node:module");
const { join } = require("node:path");
const { cachedDataVersionTag } = require("node:v8");
const { Script } = require("node:vm");
const { crc32 } = require("node:zlib");

const DIST = join(__dirname, "../dist");
const ENTRY = "main.cjs";
const TAG = cachedDataVersionTag();
const CACHE = join(DIST, "cache", TAG.toString(16));
const CHECKSUM_BYTES = 4;

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
  const cachedData = keptCode(name);
  // The engine takes compiled code only under the flags that it was made under. The part that changes flags hears of this.
  process.emit("compile");
  const script = new Script(text, { filename, cachedData });
  if (cachedData === undefined || script.cachedDataRejected) withoutCache.push({ name, script });
  process.emit("compiled");
  return script;
}

/** The engine crashes on damaged code, so its checksum comes first. Returns undefined when there is no whole code. */
function keptCode(name) {
  try {
    const kept = readFileSync(join(CACHE, name));
    const code = kept.subarray(0, -CHECKSUM_BYTES);
    return crc32(code) === kept.readUInt32LE(code.length) ? code : undefined;
  } catch {
    return undefined;
  }
}

process.on("exit", () => {
  if (withoutCache.length === 0) return;
  process.emit("compile");
  // Under other flags than those of the start, nothing of use can be made.
  if (cachedDataVersionTag() !== TAG) return;
  try {
    // Files of another user would be in the way of who removes the program.
    if (process.getuid && process.getuid() !== statSync(DIST).uid) return;
    mkdirSync(CACHE, { recursive: true });
    for (const { name, script } of withoutCache) keep(join(CACHE, name), script.createCachedData());
  } catch {
    // Only time is lost.
  }
});

/** Other processes may read or write the same file now. One that a failing machine has cut is not whole, and is replaced. */
function keep(file, code) {
  const draft = `${file}.${process.pid}`;
  const checksum = Buffer.alloc(CHECKSUM_BYTES);
  checksum.writeUInt32LE(crc32(code));
  try {
    writeFileSync(draft, Buffer.concat([code, checksum]));
    renameSync(draft, file);
  } catch {
    rmSync(draft, { force: true });
  }
}

// With `--enable-source-maps`, stack traces name the places in the source. Node reads maps for its own modules alone.
if (process.sourceMapsEnabled) require(join(DIST, ENTRY));
else load(ENTRY);
