#!/usr/bin/env node
const module_ = require("node:module");
const { homedir } = require("node:os");
const { join } = require("node:path");

// From 22.1 on, Node can keep compiled code. Its own directory for it is shared by all users of the machine; this one is not.
module_.enableCompileCache?.(join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "imgbatch"));

// The live view has a top-level `await`, so only an `import` loads it.
void require("../dist/main.cjs").main(() => import("../dist/view.mjs"));
