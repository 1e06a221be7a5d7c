import { existsSync } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Readable, Writable } from "node:stream";
import { finished } from "node:stream/promises";
import { McpServer, type ServerContext } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { upstreamName } from "../../config/load.ts";
import { agreementsFile, cacheDirectory, dataDirectoryOf, NO_CONFIG_FILE } from "../../config/paths.ts";
import { DATA_FILES } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readEnvironment } from "../../environment.ts";
import { confineWrites } from "../../kernel/files.ts";
import { hideUsedKeysIn } from "../../kernel/hide-keys.ts";
import { microsToDecimal, microsToNumber, upToCents } from "../../kernel/money.ts";
import { readVersion } from "../../kernel/package-file.ts";
import { formatBytes } from "../../kernel/text.ts";
import type { CommandContext } from "../command.ts";
import { moneyOptions, upstreamOption } from "../commands/shared-options.ts";
import { openService } from "../connect/connect.ts";
import type { ConnectedService, ServiceNeeds } from "../connect/connection.ts";
import { toImgbatchError } from "../output/finish.ts";
import { commandAgain } from "../output/next-step.ts";
import { failureOf, type Line, runLine, type Session } from "./call.ts";
import { previewsOf } from "./previews.ts";
import { Spending } from "./spending.ts";
import { type Answer, TOOLS, type Tool } from "./tools.ts";

const INSTRUCTIONS = `imgbatch makes images in bulk. Write prompts into a JSONL file below the root, then: check_prompts, submit, status until all batches have ended, download. For one image: generate. Ids and directories are handles: pass them on. Next steps are written as command lines; the tool of the same name takes the same step. Money is a person's: without their consent to a total no paid image is made. Never work around a refusal.`;

/**
 * Serves the Model Context Protocol on standard input and output until the client closes its end, or a signal comes. Files are
 * read and written below the directory `shownRoot` alone.
 */
export async function serveMcp(context: CommandContext, shownRoot: string): Promise<void> {
  const closing = new AbortController();
  const { session, service, dataDirectory } = await openSession(context, shownRoot, closing.signal);
  const calls = new Map<string, Promise<CallResult>>();
  const input = Readable.from(boundedLines(context.stdin()));
  const transport = new StdioServerTransport(input, lineWriter(context));
  const closed = new Promise<void>((resolve, reject) => {
    const close = transport.close.bind(transport);
    transport.close = () => close().finally(resolve);
    // An input that a signal ends does not end for the transport.
    finished(input).catch((error) => (error instanceof LineTooLong ? reject(error) : resolve()));
  });
  closed.catch(() => {});
  const onerror = (error: Error) => context.output.detail(`mcp: ${error.message}`);
  const handle = serveStdio(() => createServer(session, calls), { transport, onerror });
  confineWrites([session.context.cwd, dataDirectory, cacheDirectory()]);
  try {
    await Promise.race([closed, service.failed]);
  } finally {
    closing.abort(new ImgbatchError("INTERRUPTED", "The client has closed the connection."));
    await service.pause();
    // An image that is being made now is paid.
    await Promise.allSettled(calls.values());
    await handle.close();
    input.destroy();
    await service.close();
    confineWrites(null);
  }
}

/** The bytes of a message. Prompts of any number are in files. */
const MOST_LINE_BYTES = 8 * 1024 * 1024;

class LineTooLong extends ImgbatchError {}

/** Passes on what the client sends. Throws for a message without end: what follows it is not known. */
async function* boundedLines(stdin: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of stdin) {
    const end = chunk.lastIndexOf(NEWLINE);
    bytes = end < 0 ? bytes + chunk.length : chunk.length - end - 1;
    if (bytes > MOST_LINE_BYTES) {
      const message = `The client sent a message of more than ${formatBytes(MOST_LINE_BYTES)}; the connection is closed.`;
      throw new LineTooLong("INVALID_INPUT", message, {
        advice: "write the prompts into a file and name it",
      });
    }
    yield chunk;
  }
}

const NEWLINE = 0x0a;

/** Throws `USAGE` for a wrong root, and for a key that would come from standard input. */
async function openSession(context: CommandContext, shownRoot: string, closing: AbortSignal) {
  const { global, options, typed, clock } = context;
  if (global.apiKeyStdin)
    throw new ImgbatchError("USAGE", "--api-key-stdin: standard input is the client's. Use --api-key-file.", {
      param: "--api-key-stdin",
    });
  const root = resolve(context.cwd, shownRoot);
  const isDirectory = await stat(root).then(
    (facts) => facts.isDirectory(),
    () => false,
  );
  if (!isDirectory)
    throw new ImgbatchError("USAGE", `--root ${root}: there is no such directory.`, { param: "--root" });
  const dataDirectory = dataDirectoryOf(global.data, readEnvironment(), context.cwd);
  const cwd = await realpath(root);
  // The commands find the same files as this one, wherever the root is.
  const path = (name: string | undefined) => (name === undefined ? undefined : resolve(context.cwd, name));
  const config = global.config === NO_CONFIG_FILE ? NO_CONFIG_FILE : path(global.config);
  const apiKeyFile = path(global.apiKeyFile);
  const within = { options, cwd, global: { ...global, data: dataDirectory, config, apiKeyFile } };
  const { upstream: named, unitCostMicroUsd: unitCost } = options;
  const upstream = named === undefined ? undefined : upstreamName({ file: config, cwd }, named);
  const needs = {
    upstream: upstream === undefined ? null : { name: upstream, isTyped: true },
    priced: unitCost === undefined ? null : { id: null, usd: microsToNumber(unitCost) },
  };
  const inner = {
    ...context,
    ...within,
    hidden: [dataDirectory, dirname(agreementsFile()), ...(apiKeyFile === undefined ? [] : [apiKeyFile])],
  };
  const service = serviceOf(inner, needs, closing);
  const session: Session = {
    context: inner,
    spending: new Spending({
      dataDirectory,
      maxMicroUsd: options.maxCostMicroUsd ?? null,
      startWith: (micros) =>
        commandAgain(typed, moneyOptions.maxCostMicroUsd, microsToDecimal(upToCents(micros))),
      clock,
    }),
    connect: service.connect,
    passed: {
      ...(upstream === undefined ? {} : { upstream }),
      ...(unitCost === undefined ? {} : { unitCostMicroUsd: microsToDecimal(unitCost) }),
    },
    closing,
  };
  return { session, service, dataDirectory };
}

/** The errors that leave what was made to be fetched: a key is missing, or another service has the data directory. */
const WITHOUT_IMAGES = ["API_KEY_REQUIRED", "DATA_DIRECTORY_IN_USE"];

/** The service of all calls: the named one, the one that runs on the data directory, or one of this process. */
function serviceOf(
  context: CommandContext,
  own: Pick<ServiceNeeds, "upstream" | "priced">,
  closing: AbortSignal,
) {
  const { global, cwd, output, clock, signal } = context;
  let embedded: ConnectedService | null = null;
  const guests: ConnectedService[] = [];
  let fail = (_: unknown) => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  const open = async (needs: ServiceNeeds): Promise<ConnectedService> => {
    closing.throwIfAborted();
    if (embedded !== null) return embedded;
    const ask = (images: boolean) =>
      openService(
        global,
        { ...own, workers: true, images },
        { output, clock, signal, cwd, stdin: nothing() },
      );
    const hasData = existsSync(
      join(dataDirectoryOf(global.data, readEnvironment(), cwd), DATA_FILES.credentials),
    );
    const service = await ask(true).catch((error: unknown) => {
      const mayLook = hasData && WITHOUT_IMAGES.includes(toImgbatchError(error).code);
      if (!mayLook || (needs.images ?? needs.workers)) throw error;
      return ask(false);
    });
    if (service.kind === "running") guests.push(service);
    if (service.kind !== "embedded") return service;
    embedded = service;
    service.failed?.addEventListener("abort", () => fail(service.failed?.reason), { once: true });
    return service;
  };
  let turn: Promise<unknown> = Promise.resolve();
  return {
    failed,
    /** One call after the other, so that one service is started. */
    connect: async (needs: ServiceNeeds) => {
      const opening = turn.then(() => open(needs));
      turn = opening.catch(() => {});
      const service = await opening;
      if (service.kind !== "remote" && (needs.images ?? needs.workers)) requireUpstream(context, needs, own);
      return service;
    },
    pause: async () => {
      await turn;
      embedded?.pause?.();
    },
    close: async () => {
      await Promise.all(guests.map((guest) => guest.stop()));
      await embedded?.stop();
    },
  };
}

/** Throws `DIRECTORY_CONFLICT` for a run that another upstream makes than that of this server. */
function requireUpstream(
  { typed }: CommandContext,
  { upstream = null }: ServiceNeeds,
  { upstream: own = null }: Pick<ServiceNeeds, "upstream">,
): void {
  if (upstream === null || upstream.name === own?.name) return;
  const message = `The images of this run are made by ${upstream.name}, and this server ${own === null ? "has no --upstream" : `uses ${own.name}`}. Nothing was sent.`;
  throw new ImgbatchError("DIRECTORY_CONFLICT", message, {
    advice: `choose another output, or ask the person to start this server with ${commandAgain(typed, upstreamOption, upstream.name)}`,
  });
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

/** Writes each message as a line of the result. */
function lineWriter({ results }: CommandContext): Writable {
  let left = "";
  return new Writable({
    write: (chunk: Buffer | string, _encoding, done) => {
      const lines = `${left}${chunk}`.split("\n");
      left = lines.pop() ?? "";
      for (const line of lines) results.line(line);
      done();
    },
  });
}

type CallResult = Awaited<ReturnType<Parameters<McpServer["registerTool"]>[2]>>;

function createServer(session: Session, calls: Map<string, Promise<CallResult>>): McpServer {
  const server = new McpServer(
    { name: "imgbatch", title: "imgbatch", version: readVersion() },
    { instructions: INSTRUCTIONS },
  );
  for (const tool of TOOLS) {
    const { name, title, description, annotations, inputSchema, outputSchema } = tool;
    server.registerTool(
      name,
      { title, description, annotations, inputSchema, outputSchema },
      (input, request) => {
        // The same call that comes again meanwhile gets the same answer.
        const key = JSON.stringify([name, input]);
        const progress = progressOf(request);
        const call =
          calls.get(key) ?? callTool(session, tool, input, progress.tell).finally(() => calls.delete(key));
        calls.set(key, call);
        return call.finally(progress.stop);
      },
    );
  }
  return server;
}

/** A client that waits for a sign of life gets one as often. */
const PROGRESS_MS = 5000;
const SHORTEST_MS = 200;

/** Sends progress to a client that asks for it: when there is something new, and from time to time. */
function progressOf({ mcpReq }: ServerContext) {
  const token = mcpReq._meta?.progressToken;
  if (token === undefined) return { tell: () => {}, stop: () => {} };
  let [progress, last, message] = [0, 0, "working"];
  const send = () => {
    last = Date.now();
    const params = { progressToken: token, progress: ++progress, message };
    mcpReq.notify({ method: "notifications/progress", params }).catch(() => {});
  };
  const timer = setInterval(send, PROGRESS_MS);
  return {
    tell: (text: string) => {
      const isNew = text !== message;
      message = text;
      if (isNew && Date.now() - last >= SHORTEST_MS) send();
    },
    stop: () => clearInterval(timer),
  };
}

async function callTool(
  session: Session,
  tool: Tool,
  input: unknown,
  tell: (text: string) => void,
): Promise<CallResult> {
  let line: Line | null = null;
  try {
    line = await tool.lineOf(input as never, session);
    const done = await runLine(session, line, tell);
    const { notes, next, isOk, json } = done;
    const { error } = json as { error?: object };
    const answer = await tool.answer(done, input as never, session);
    const common = { ok: isOk, ...(error === undefined ? {} : { error }), notes, next };
    return await resultOf({ ...answer, json: { ...common, ...answer.json } }, session.context.cwd);
  } catch (thrown) {
    const failure = failureOf(thrown, line ?? {});
    if (tool.wrong !== undefined && failure.error.code === "INVALID_INPUT")
      return await resultOf(await tool.wrong(failure, session), session.context.cwd);
    return { content: [{ type: "text", text: JSON.stringify(failure) }], isError: true };
  }
}

async function resultOf({ json, pictures = [] }: Answer, root: string): Promise<CallResult> {
  const structuredContent = hideUsedKeysIn(JSON.parse(JSON.stringify(json)) as Record<string, unknown>);
  return {
    content: [
      { type: "text", text: JSON.stringify(structuredContent) },
      ...(await previewsOf(pictures, root)),
    ],
    structuredContent,
  };
}
