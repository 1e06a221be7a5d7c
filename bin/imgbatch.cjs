#!/usr/bin/env node
// Loads the program in `dist`. Node's own loader compiles every file at every start, which takes most of its time. This
// loader keeps the compiled code of each file in `dist/cache`, at the end of the first run that loads the file. The code
// belongs to one version and one set of flags of the engine, which refuses any other: then it is made again. Where `dist`
// cannot be written to, a start only takes longer.
const { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");
const { Script } = require("node:vm");
const { crc32 } = require("node:zlib");

const DIST = join(__dirname, "../dist");
const ENTRY = "main.cjs";
// `v8.cachedDataVersionTag()` would say more exactly what the code belongs to, and takes longer to load than all of this.
const { version, arch, execArgv, env } = process;
const ENGINE = JSON.stringify([version, arch, execArgv, env.NODE_OPTIONS]);
const CACHE = join(DIST, "cache", crc32(ENGINE).toString(16));
const WRAPPER = ["(function (exports, require, module, __filename, __dirname) { ", "\n})"].map((text) =>
  Buffer.from(text),
);
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

/** The engine compares only the length of the text. So compiled code is kept only for files with a hash in their names. */
function compile(name, filename) {
  // Joined as bytes: joined strings would be copied once more when they are compiled, and fill the space of new objects.
  const text = Buffer.concat([WRAPPER[0], readFileSync(filename), WRAPPER[1]]).latin1Slice();
  if (name === ENTRY) return new Script(text, { filename });
  const cachedData = keptCode(name);
  // The engine accepts compiled code only under the flags that it was made with. Whoever changed flags puts them back now.
  process.emit("compile");
  const script = new Script(text, { filename, cachedData });
  if (cachedData === undefined || script.cachedDataRejected) withoutCache.push({ name, script });
  process.emit("compiled");
  return script;
}

/** Returns undefined when the code is missing or its checksum is wrong: the engine crashes on damaged code. */
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
  try {
    // The owner of the program could not remove the files of another user.
    if (process.getuid && process.getuid() !== statSync(DIST).uid) return;
    mkdirSync(CACHE, { recursive: true });
    for (const { name, script } of withoutCache) keep(join(CACHE, name), script.createCachedData());
  } catch {
    // The next start takes longer; nothing else is lost.
  }
});

/** Writes a draft first, because other processes may use the same file now. A file that a crash has cut is replaced later. */
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

// Node reads source maps only for modules that its own loader has loaded.
if (process.sourceMapsEnabled) require(join(DIST, ENTRY));
else load(ENTRY);
