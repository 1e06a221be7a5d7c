import { readFileSync } from "node:fs";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { type ReviewedRun, serveReview } from "../../src/cli/review-page.ts";
import { REVIEW_PATHS, type ReviewAnswer } from "../../src/contract/review-api.ts";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { tempDir } from "../support/temp-dir.ts";

const clock = () => new InstantClock(Date.parse("2030-01-02T03:04:05Z"));

/** A served review of one picture, and of names that no review may serve. */
async function serve(time = clock()) {
  const dir = await tempDir();
  const outside = await tempDir();
  const picture = await tinyPng(8);
  await mkdir(join(dir, "images"));
  await writeFile(join(dir, "images/fox.png"), picture);
  await writeFile(join(outside, "secret.png"), await tinyPng(9));
  await writeFile(join(dir, "notes.txt"), "no picture");
  await symlink(join(outside, "secret.png"), join(dir, "images/link.png"));
  const hashOf = (path: string) => sha256Hex(readFileSync(path));
  const paths = { fox: "images/fox.png", link: "images/link.png", notes: "notes.txt" };
  const hashes = {
    fox: hashOf(join(dir, paths.fox)),
    link: hashOf(join(outside, "secret.png")),
    notes: hashOf(join(dir, paths.notes)),
  };
  const answers: ReviewAnswer[] = [];
  const run: ReviewedRun = {
    dir,
    view: async () => ({ object: "review", title: "pets", retry: "", lines: [] }),
    pictures: async () =>
      new Map([
        [hashes.fox, paths.fox],
        [hashes.link, paths.link],
        [hashes.notes, paths.notes],
        ["0".repeat(64), "images/fox.png"],
        ["1".repeat(64), "../../../etc/passwd"],
      ]),
    decide: async (answer) => void answers.push(answer),
    undo: async () => ({ id: null }),
  };
  const server = await serveReview(run, time);
  onTestFinished(() => server.close());
  const { origin, hash } = new URL(server.link);
  const url = (path: string) => `${origin}/review${path}`;
  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
  const signIn = async (code = hash.slice("#code=".length)) =>
    fetch(url(REVIEW_PATHS.sessions), { method: "POST", headers: bearer(code) });
  const token = async () => bearer((await (await signIn()).json()).token);
  return { server, origin, url, hashes, picture, answers, signIn, token, bearer };
}

it("[REV-24] the link of a review signs in once, within 10 minutes; without its session nothing of the run is served", async () => {
  const { server, url, hashes, signIn, bearer } = await serve();
  expect(server.link).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/review\/#code=[\w-]{43}$/);
  expect((await signIn("wrong")).status).toBe(401);
  const first = await signIn();
  expect(first.status).toBe(200);
  expect(first.headers.get("set-cookie")).toBeNull();
  const { token } = await first.json();
  expect((await signIn()).status).toBe(401);
  const paths = [REVIEW_PATHS.review, REVIEW_PATHS.image(hashes.fox)];
  for (const path of paths) {
    expect((await fetch(url(path))).status).toBe(401);
    expect((await fetch(url(path), { headers: bearer(new URL(server.link).hash.slice(6)) })).status).toBe(
      401,
    );
    expect((await fetch(url(path), { headers: bearer(token) })).status).toBe(200);
  }
  const post = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
  for (const path of [REVIEW_PATHS.decisions, REVIEW_PATHS.undo])
    expect((await fetch(url(path), post)).status).toBe(401);

  const time = clock();
  const late = await serve(time);
  await time.sleep(10 * 60_000 + 1);
  expect((await late.signIn()).status).toBe(401);
});

it("[REV-24] another Host is refused, no answer is for other pages, and the page keeps everything to itself", async () => {
  const { origin, url, token } = await serve();
  const { port } = new URL(origin);
  const statusFor = (host: string) =>
    new Promise((resolve) =>
      request({ port, host: "127.0.0.1", path: "/review/", headers: { host } }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      }).end(),
    );
  expect(await statusFor("evil.example")).toBe(421);
  expect(await statusFor(`evil.example:${port}`)).toBe(421);
  const headers = { ...(await token()), origin: "http://evil.example" };
  const answer = await fetch(url(REVIEW_PATHS.review), { headers });
  expect(answer.headers.get("access-control-allow-origin")).toBeNull();
  const preflight = await fetch(url(REVIEW_PATHS.decisions), { method: "OPTIONS", headers });
  expect(preflight.headers.get("access-control-allow-origin")).toBeNull();
  const page = await fetch(url("/"));
  expect(page.headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
  expect((await fetch(`${origin}/`)).status).toBe(404);
});

it("[REV-24] a picture is served by its hash alone: no other file, none outside, and none that has changed", async () => {
  const { url, hashes, picture, token } = await serve();
  const headers = await token();
  const get = (path: string) => fetch(url(path), { headers });
  const found = await get(REVIEW_PATHS.image(hashes.fox));
  expect(found.headers.get("content-type")).toBe("image/png");
  expect(Buffer.from(await found.arrayBuffer()).equals(picture)).toBe(true);
  const small = await get(`${REVIEW_PATHS.image(hashes.fox)}?width=256`);
  expect(small.headers.get("content-type")).toBe("image/webp");
  const refused = [hashes.link, hashes.notes, "0".repeat(64), "1".repeat(64), "2".repeat(64)];
  for (const hash of [...refused, "..%2f..%2fnotes.txt", "images%2ffox.png"])
    expect((await get(REVIEW_PATHS.image(hash))).status).toBe(404);
});

it("a decision that is none is refused by field, and nothing is written", async () => {
  const { url, answers, token } = await serve();
  const headers = { ...(await token()), "content-type": "application/json" };
  const post = async (body: unknown) => {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return fetch(url(REVIEW_PATHS.decisions), { method: "POST", headers, body: text });
  };
  const right = {
    id: "fox",
    versions: ["a".repeat(64)],
    decision: { verdict: "keep", chosen: null, words: "" },
  };
  for (const body of [
    "",
    "{",
    { ...right, versions: [] },
    { ...right, decision: { ...right.decision, verdict: "maybe" } },
    { ...right, decision: { ...right.decision, words: "x".repeat(2001) } },
    { ...right, decision: { ...right.decision, words: "x".repeat(100_000) } },
  ])
    expect((await post(body)).status).toBe(400);
  expect(answers).toEqual([]);
  expect((await post(right)).status).toBe(204);
  expect(answers).toEqual([right]);
});
