import { createHash } from "node:crypto";
import { request } from "node:http";
import { AwsClient } from "aws4fetch";
import { describe, expect, it, onTestFinished } from "vitest";
import { type FakeS3, startFakeS3 } from "./fake-s3.ts";

const CONTENT = Buffer.from("the bytes of an image ".repeat(4_000));
const sha256 = (bytes: Buffer, form: "hex" | "base64") => createHash("sha256").update(bytes).digest(form);

/** The server with an outside client that signs; `ask` sends the hash of the body along. */
async function start(settings: Parameters<typeof startFakeS3>[0] = {}) {
  const s3 = await startFakeS3(settings);
  onTestFinished(() => s3.close());
  const client = (credentials: Partial<FakeS3["credentials"]> & { region?: string } = {}) =>
    new AwsClient({ ...s3.credentials, service: "s3", region: s3.region, retries: 0, ...credentials });
  const ask = (
    method: string,
    path: string,
    body?: Buffer | string,
    headers: Record<string, string> = {},
    by = client(),
  ) => {
    const bytes = Buffer.from(body ?? "");
    const init = { method, ...(body === undefined ? {} : { body: bytes }) };
    const signed = { "x-amz-content-sha256": sha256(bytes, "hex"), ...headers };
    return by.fetch(`${s3.url}/${s3.bucket}/${path}`, { ...init, headers: signed });
  };
  return { s3, client, ask };
}

const codeOf = async (answer: Response) => [
  answer.status,
  /<Code>(.*)<\/Code>/.exec(await answer.text())?.[1],
];
/** Reads the body, too: an unread one keeps its connection. */
const statusOf = async (answer: Promise<Response>) => {
  const whole = await answer;
  await whole.arrayBuffer();
  return whole.status;
};
const keysOf = (page: string) => [...page.matchAll(/<Key>(.*?)<\/Key>/g)].map((match) => match[1]);

describe("the fake of S3", () => {
  it("[FAKE-5] keeps objects with their checksums, and gives them whole, in part and never after their end", async () => {
    const { s3, ask } = await start();
    const sum = { "x-amz-checksum-sha256": sha256(CONTENT, "base64") };
    expect(
      await statusOf(ask("PUT", "outputs/a b%2B(1).png", CONTENT, { ...sum, "content-type": "image/png" })),
    ).toBe(200);
    expect([...s3.objects.keys()]).toEqual(["outputs/a b+(1).png"]);
    const whole = await ask("GET", "outputs/a b%2B(1).png", undefined, { "x-amz-checksum-mode": "ENABLED" });
    expect(Object.fromEntries(whole.headers)).toMatchObject({ ...sum, "content-type": "image/png" });
    expect(Buffer.from(await whole.arrayBuffer()).equals(CONTENT)).toBe(true);
    const part = await ask("GET", "outputs/a b%2B(1).png", undefined, { range: "bytes=4-8" });
    expect([part.status, part.headers.get("content-range")]).toEqual([206, `bytes 4-8/${CONTENT.length}`]);
    expect(await part.text()).toBe("bytes");
    const behind = await ask("GET", "outputs/a b%2B(1).png", undefined, {
      range: `bytes=${CONTENT.length}-`,
    });
    expect(await codeOf(behind)).toEqual([416, "InvalidRange"]);
    const head = await ask("HEAD", "outputs/a b%2B(1).png");
    expect([head.status, head.headers.get("content-length")]).toEqual([200, String(CONTENT.length)]);
    expect(await statusOf(ask("DELETE", "outputs/a b%2B(1).png"))).toBe(204);
    expect(await statusOf(ask("DELETE", "outputs/a b%2B(1).png"))).toBe(204);
    expect(await codeOf(await ask("GET", "outputs/a b%2B(1).png"))).toEqual([404, "NoSuchKey"]);
    expect(await statusOf(ask("HEAD", "outputs/a b%2B(1).png"))).toBe(404);
    expect(await statusOf(ask("HEAD", ""))).toBe(200);
  });

  it("[FAKE-5] refuses what Amazon refuses: wrong keys, regions, times, hashes, sums and what nobody signed", async () => {
    const { s3, client, ask } = await start();
    const put = (headers: Record<string, string>, by = client()) => ask("PUT", "k", CONTENT, headers, by);
    expect(await codeOf(await fetch(`${s3.url}/images/k`))).toEqual([403, "AccessDenied"]);
    expect(await codeOf(await put({}, client({ accessKeyId: "AKIAOTHER" })))).toEqual([
      403,
      "InvalidAccessKeyId",
    ]);
    const other = client({ secretAccessKey: "another" });
    expect(await codeOf(await put({}, other))).toEqual([403, "SignatureDoesNotMatch"]);
    const elsewhere = client({ region: "eu-west-1" });
    expect(await codeOf(await put({}, elsewhere))).toEqual([400, "AuthorizationHeaderMalformed"]);
    expect(await codeOf(await put({}, client({ sessionToken: "t" })))).toEqual([400, "InvalidToken"]);
    const wrongHash = { "x-amz-content-sha256": sha256(Buffer.from("other"), "hex") };
    expect(await codeOf(await put(wrongHash))).toEqual([400, "XAmzContentSHA256Mismatch"]);
    const wrongSum = { "x-amz-checksum-sha256": sha256(Buffer.from("other"), "base64") };
    expect(await codeOf(await put(wrongSum))).toEqual([400, "BadDigest"]);
    expect(await codeOf(await put({ "x-amz-checksum-sha256": "none" }))).toEqual([400, "InvalidRequest"]);

    const signed = await client().sign(`${s3.url}/images/k`, { method: "PUT", body: CONTENT });
    const more = new Request(signed, {
      headers: { ...Object.fromEntries(signed.headers), "x-amz-acl": "public-read" },
    });
    expect(await codeOf(await fetch(more))).toEqual([403, "AccessDenied"]);
    s3.now = () => Date.now() + 16 * 60_000;
    expect(await codeOf(await put({}))).toEqual([403, "RequestTimeTooSkewed"]);
    s3.now = Date.now;
    expect(s3.objects.size).toBe(0);
    expect(await statusOf(put({ "if-none-match": "*" }))).toBe(200);
    expect(await codeOf(await put({ "if-none-match": "*" }))).toEqual([412, "PreconditionFailed"]);
    expect(await codeOf(await ask("GET", "?uploads"))).toEqual([501, "NotImplemented"]);
  });

  it("[FAKE-5] takes a session's token, and the bucket by virtual host", async () => {
    const credentials = { accessKeyId: "AKIATEMPORARY", secretAccessKey: "s", sessionToken: "token" };
    const { s3, client } = await start({ credentials, bucket: "many", region: "eu-west-1" });
    const url = new URL("/in/k", s3.url.replace("127.0.0.1", "many.localhost"));
    const body = Buffer.from("x");
    const { headers } = await client().sign(url, { method: "PUT", body });
    const status = await new Promise((resolve, reject) => {
      const options = { host: "127.0.0.1", port: url.port, path: url.pathname, method: "PUT" };
      const sent = request(
        { ...options, headers: { ...Object.fromEntries(headers), host: url.host } },
        (answer) => {
          answer.resume().on("end", () => resolve(answer.statusCode));
        },
      );
      sent.on("error", reject).end(body);
    });
    expect([status, ...s3.objects.keys()]).toEqual([200, "in/k"]);
  });

  it("[FAKE-5] lists in pages by the bytes of the keys, and deletes many at once", async () => {
    const { s3, ask } = await start();
    const names = ["a/1", "a/10", "a/2", "a/b/1", "a/b/2", "a/<&>", "b/1"];
    for (const name of names) expect(await statusOf(ask("PUT", encodeURIComponent(name), "x"))).toBe(200);
    s3.pageSize = 2;
    const seen: (string | undefined)[] = [];
    let token: string | undefined;
    do {
      const more = token === undefined ? "" : `&continuation-token=${token}`;
      const page = await (await ask("GET", `?list-type=2&prefix=a%2F${more}`)).text();
      expect(page).toContain("<Size>1</Size>");
      seen.push(...keysOf(page));
      token = /<NextContinuationToken>(.*)<\/NextContinuationToken>/.exec(page)?.[1];
      expect(page).toContain(`<IsTruncated>${token !== undefined}</IsTruncated>`);
    } while (token !== undefined);
    expect(seen).toEqual(["a/1", "a/10", "a/2", "a/&lt;&amp;&gt;", "a/b/1", "a/b/2"]);
    s3.pageSize = 1000;
    const folders = await (await ask("GET", "?list-type=2&prefix=a%2F&delimiter=%2F")).text();
    expect(keysOf(folders)).toEqual(["a/1", "a/10", "a/2", "a/&lt;&amp;&gt;"]);
    expect(folders).toContain("<CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes>");

    const body = Buffer.from(
      "<Delete><Object><Key>a/1</Key></Object><Object><Key>a/&lt;&amp;&gt;</Key></Object></Delete>",
    );
    expect(await codeOf(await ask("POST", "?delete", body))).toEqual([400, "InvalidRequest"]);
    const sum = { "x-amz-checksum-sha256": sha256(body, "base64") };
    expect(keysOf(await (await ask("POST", "?delete", body, sum)).text())).toEqual([
      "a/1",
      "a/&lt;&amp;&gt;",
    ]);
    expect([...s3.objects.keys()].sort()).toEqual(["a/10", "a/2", "a/b/1", "a/b/2", "b/1"]);
    const broken = Buffer.from("<Delete><Object>");
    const itsSum = { "x-amz-checksum-sha256": sha256(broken, "base64") };
    expect(await codeOf(await ask("POST", "?delete", broken, itsSum))).toEqual([400, "MalformedXML"]);
  });

  it("[FAKE-6] has every misfortune on demand, once or as often as asked", async () => {
    const { s3, ask } = await start();
    s3.fail(
      { refuse: { status: 503, code: "SlowDown" } },
      { times: 2, when: ({ method }) => method === "PUT" },
    );
    expect(await codeOf(await ask("PUT", "k", CONTENT))).toEqual([503, "SlowDown"]);
    expect(await statusOf(ask("GET", "k"))).toBe(404);
    expect(await statusOf(ask("PUT", "k", CONTENT))).toBe(503);
    s3.fail({ reset: "before" });
    await expect(ask("PUT", "k", CONTENT)).rejects.toThrow("fetch failed");
    expect(s3.objects.size).toBe(0);
    s3.fail({ reset: "after" });
    await expect(ask("PUT", "k", CONTENT)).rejects.toThrow("fetch failed");
    expect(s3.objects.size).toBe(1);
    s3.fail({ cutAt: 100 });
    await expect((await ask("GET", "k")).arrayBuffer()).rejects.toThrow("terminated");
    s3.fail({ wrongBytes: true });
    const wrong = Buffer.from(await (await ask("GET", "k")).arrayBuffer());
    expect([wrong.length, wrong.equals(CONTENT)]).toEqual([CONTENT.length, false]);
    s3.fail({ slowMs: 1 });
    expect(Buffer.from(await (await ask("GET", "k")).arrayBuffer()).equals(CONTENT)).toBe(true);
    s3.fail({ hang: true });
    const leaving = new AbortController();
    const gone = expect(fetch(`${s3.url}/images/k`, { signal: leaving.signal })).rejects.toThrow("aborted");
    await expect.poll(() => s3.requests).toHaveLength(9);
    leaving.abort();
    await gone;
    s3.fail({ hang: true }, { times: 1000 });
    s3.heal();
    expect(await statusOf(ask("GET", "k"))).toBe(200);
    expect(s3.requests.map(({ status }) => status)).toEqual([503, 404, 503, 0, 0, 200, 200, 200, 0, 200]);
  });
});
