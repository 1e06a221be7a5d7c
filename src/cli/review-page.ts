import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import express, { type ErrorRequestHandler, type RequestHandler } from "express";
import { z } from "zod";
import { type ConsoleBody, signInUrl } from "../contract/console-api.ts";
import { errorBody, errorEntry, ImgbatchError } from "../contract/errors.ts";
import { sniffImageType } from "../contract/image-formats.ts";
import {
  REVIEW_PATHS,
  type ReviewAnswer,
  type ReviewLine,
  type ReviewObject,
  type ReviewUndone,
  VERDICTS,
} from "../contract/review-api.ts";
import type { Clock } from "../kernel/clock.ts";
import { toSeconds } from "../kernel/durations.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { packageFile } from "../kernel/package-file.ts";
import { openPath } from "../processes/programs.ts";
import { lookAtPictures } from "../runs/checks.ts";
import { CHECKS_FILE, INPUT_FILE, VERSIONS_FOLDER } from "../runs/directory/names.ts";
import { RESULTS_FILE, readResults } from "../runs/directory/results.ts";
import { readFacts } from "../runs/directory/run-files.ts";
import { RUN_STATE_FILE } from "../runs/directory/run-state.ts";
import {
  decisionOn,
  decisionsFor,
  judgedFacts,
  type ReviewedPictures,
  readPictures,
} from "../runs/reports/review-run.ts";
import { addDecisions, readReview } from "../runs/review.ts";
import { consolePage } from "../server/console/page.ts";
import { requireKnownHost } from "../server/http/host.ts";
import type { CommandContext } from "./command.ts";
import { nextCommand } from "./output/next-step.ts";
import { loadThumbnail } from "./output/reports.ts";

/**
 * Shows the review of a run in the browser until a signal ends it. The link is on stdout; `opens`: on a terminal, the browser opens it. Each decision is on disk at once, so the end loses none.
 */
export async function showReview(
  context: CommandContext,
  { dir, shownDir, opens }: { dir: string; shownDir: string; opens: boolean },
): Promise<void> {
  const { clock, output, results, signal } = context;
  const run = createReviewedRun(context, { dir, shownDir });
  await run.view();
  const server = await serveReview(run, clock);
  try {
    const isOpen = results.isForPeople && opens && (await openPath(server.link));
    results.line(server.link);
    output.note(
      isOpen
        ? "opened in the browser; Ctrl-C ends the review"
        : "open this link in a browser of this machine, within 10 minutes; Ctrl-C ends the review",
    );
    // Meanwhile the page shows what is found so far.
    const looks = readResults(dir).then((lines) => lookAtPictures(dir, lines, { clock, signal }));
    if (!signal.aborted) await once(signal, "abort");
    await looks.catch(() => {});
  } finally {
    await server.close();
  }
}

/** Reads the pictures of a run again only when they have changed, and takes decisions back in their order. */
function createReviewedRun(
  { clock, global }: Pick<CommandContext, "clock" | "global">,
  { dir, shownDir }: { dir: string; shownDir: string },
): ReviewedRun {
  const undone: { id: string; decisions: Parameters<typeof addDecisions>[1]; versions: string }[] = [];
  let last: { stamp: string; run: Promise<ReviewedPictures> } | null = null;
  const readRun = async (): Promise<ReviewedPictures> => {
    const stamp = await stampOf(dir);
    if (last?.stamp !== stamp) {
      last = { stamp, run: readPictures(dir, shownDir, clock.nowMs()) };
      last.run.catch(() => {
        last = null;
      });
    }
    return last.run;
  };
  const lineOf = ({ lines }: ReviewedPictures, id: string) => lines.find((line) => line.id === id);
  const versionsOf = (line: Pick<ReviewLine, "images"> | undefined) =>
    (line?.images ?? []).map(({ version }) => version).join();
  const retry = nextCommand(global, "retry", shownDir, { flag: "--rejected" });
  return {
    dir,
    pictures: async () => (await readRun()).pictures,
    view: async () => {
      const [{ title, lines }, review] = await Promise.all([readRun(), readReview(dir)]);
      const decided = lines.map((line) => ({
        ...line,
        facts: [...line.facts, ...judgedFacts(line, review)],
        earlier: line.earlier.map((each) => ({ ...each, words: review.words.get(each.version) ?? "" })),
        decision: decisionOn(line, review),
      }));
      return { object: "review", title, retry, lines: decided };
    },
    decide: async ({ id, versions, decision }) => {
      const line = lineOf(await readRun(), id);
      if (line === undefined || versionsOf(line) !== versions.join()) {
        const message = `${id} has another picture by now: nothing was decided on it. Look at the new one.`;
        throw new ImgbatchError("NOT_FOUND", message);
      }
      const { made, undo } = decisionsFor(line, decision, await readReview(dir));
      await addDecisions(dir, made, clock);
      undone.push({ id, decisions: undo, versions: versionsOf(line) });
    },
    undo: async () => {
      const run = await readRun();
      for (;;) {
        const decided = undone.pop();
        if (decided === undefined) return { id: null };
        // A decision on a picture that was made again since does not count any more.
        if (versionsOf(lineOf(run, decided.id)) !== decided.versions) continue;
        await addDecisions(dir, decided.decisions, clock);
        return { id: decided.id };
      }
    },
  };
}

/** Changes with each file that has to do with the pictures. */
async function stampOf(dir: string): Promise<string> {
  const names = [RUN_STATE_FILE, INPUT_FILE, RESULTS_FILE, VERSIONS_FOLDER, CHECKS_FILE];
  const stats = names.map((name) => stat(join(dir, name), { bigint: true }).catch(() => null));
  return (await Promise.all(stats)).map((each) => `${each?.ino} ${each?.size} ${each?.mtimeNs}`).join();
}

/** Only this machine reaches the page. */
const HOST = "127.0.0.1";
/** The page and all that it asks for lie below this path: the built page knows by it which page it is. */
const BASE = "/review";
const CODE_LASTS_MS = 10 * 60_000;
const SESSION_LASTS_MS = 12 * 3_600_000;
const MOST_BODY_BYTES = 64 * 1024;
const MOST_WORDS = 2000;
/** Larger files are no images of ours. */
const MOST_IMAGE_BYTES = 128 * 2 ** 20;
const WIDTHS: readonly number[] = [256, 1024];

/** A run that is reviewed: what the page shows of it, and what it does. */
export interface ReviewedRun {
  /** The run's directory. */
  dir: string;
  /** What the page shows now. */
  view(): Promise<ReviewObject>;
  /** The paths of its pictures from the directory on, by SHA-256. */
  pictures(): Promise<ReadonlyMap<string, string>>;
  /** Writes a decision. It is on disk when this resolves. Throws when the line has other pictures by now. */
  decide(answer: ReviewAnswer): Promise<void>;
  /** Takes the last decision back. */
  undo(): Promise<ReviewUndone>;
}

interface ReviewServer {
  /** Signs in once, within 10 minutes. */
  link: string;
  close(): Promise<void>;
}

/**
 * Serves the page of a review on a free port of this machine. Whoever has the link can look at the pictures of the run and
 * decide on them, and do nothing else: a picture is named by its SHA-256, and no request names a path.
 */
export async function serveReview(run: ReviewedRun, clock: Clock): Promise<ReviewServer> {
  const app = express();
  app.disable("x-powered-by");
  app.use(requireKnownHost({ host: HOST, publicUrl: null }));
  const code = randomBytes(32).toString("base64url");
  const api = express.Router();
  const door = createDoor(code, clock);
  api.post(REVIEW_PATHS.sessions, door.signIn);
  // A token in a header, never a cookie: no other page can send it, and other ports of this machine do not get it.
  api.use("/v1", door.requireSession, express.json({ limit: MOST_BODY_BYTES }));
  api.get(REVIEW_PATHS.review, async (_request, response) => {
    response.setHeader("Cache-Control", "no-cache");
    response.json(await run.view());
  });
  api.post(REVIEW_PATHS.decisions, async (request, response) => {
    await run.decide(readAnswer(request.body));
    response.status(204).end();
  });
  api.post(REVIEW_PATHS.undo, async (_request, response) => {
    response.json(await run.undo());
  });
  api.get(REVIEW_PATHS.image(":sha256"), sendPicture(run));
  app.use(
    BASE,
    api,
    ...consolePage({ features: { console: true }, consoleDirectory: packageFile("dist/console") }),
  );
  app.use(() => {
    throw new ImgbatchError("NOT_FOUND");
  });
  app.use(answerError);
  const server = createServer(app);
  server.listen(0, HOST);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    link: signInUrl(`http://${HOST}:${port}${BASE}`, code),
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

/** The one code of a link and the one session that it begins. Only their hashes are compared. */
function createDoor(code: string, clock: Clock) {
  const codeHash = sha256Hex(code);
  const codeEndsMs = clock.nowMs() + CODE_LASTS_MS;
  let session: { hash: string; endsMs: number } | null = null;
  const bearer: (header: string | undefined) => string = (header = "") =>
    /^bearer +(\S+)$/i.exec(header.trim())?.[1] ?? "";
  const signIn: RequestHandler = (request, response) => {
    const isRight = sha256Hex(bearer(request.get("authorization"))) === codeHash;
    if (!isRight || session !== null || clock.nowMs() > codeEndsMs)
      throw new ImgbatchError("INVALID_API_KEY", "This link works once, within 10 minutes.");
    const token = randomBytes(32).toString("base64url");
    session = { hash: sha256Hex(token), endsMs: clock.nowMs() + SESSION_LASTS_MS };
    const view: ConsoleBody<"Session"> = {
      object: "console.session",
      token,
      expires_at: toSeconds(session.endsMs),
    };
    response.setHeader("Cache-Control", "no-store");
    response.json(view);
  };
  const requireSession: RequestHandler = (request, _response, next) => {
    const hash = sha256Hex(bearer(request.get("authorization")));
    if (session === null || session.hash !== hash || clock.nowMs() > session.endsMs)
      throw new ImgbatchError("INVALID_API_KEY", "Open the link that imgbatch review has printed.");
    next();
  };
  return { signIn, requireSession };
}

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const answerSchema = z.object({
  id: z.string().min(1),
  versions: z.array(sha256).min(1),
  decision: z.object({
    verdict: z.enum(VERDICTS),
    chosen: sha256.nullable(),
    words: z.string().max(MOST_WORDS),
  }),
});

function readAnswer(body: unknown): ReviewAnswer {
  const parsed = answerSchema.safeParse(body);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new ImgbatchError("INVALID_INPUT", `${issue?.path.join(".") || "body"}: ${issue?.message}.`);
}

/** `GET …/images/{sha256}`: exactly these bytes, or a small picture of them. */
function sendPicture({ dir, pictures }: ReviewedRun): RequestHandler {
  const thumbnail = loadThumbnail();
  return async (request, response) => {
    const wanted = String(request.params.sha256);
    const path = (await pictures()).get(wanted);
    const found =
      path === undefined ? null : await readFacts(join(dir, path), MOST_IMAGE_BYTES, dir).catch(() => null);
    if (found === null || found.bytes > MOST_IMAGE_BYTES || found.sha256 !== wanted)
      throw new ImgbatchError("NOT_FOUND", "This picture is not in the run's directory any more.");
    const width = Number(request.query.width);
    const small = WIDTHS.includes(width) ? await (await thumbnail)?.(found.head, width) : null;
    const type = small ? "image/webp" : sniffImageType(found.head);
    if (type === null) throw new ImgbatchError("NOT_FOUND", "This file is no picture.");
    response.setHeader("Content-Type", type);
    response.setHeader("X-Content-Type-Options", "nosniff");
    response.setHeader("Cache-Control", "private, max-age=31536000, immutable");
    response.end(small ?? found.head);
  };
}

const answerError: ErrorRequestHandler = (thrown: unknown, _request, response, _next) => {
  const status = (thrown as { status?: unknown }).status;
  const error =
    thrown instanceof ImgbatchError
      ? thrown
      : typeof status === "number" && status < 500
        ? new ImgbatchError("INVALID_INPUT", "The body is no JSON of the right size.")
        : new ImgbatchError("INTERNAL_ERROR", (thrown as Error).message);
  const { httpStatus, exit } = errorEntry(error.code);
  response.status(httpStatus || (exit === "usage" ? 400 : 500)).json(errorBody(error));
};
