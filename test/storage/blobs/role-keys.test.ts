import { writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { inspect } from "node:util";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { roleKeys, s3Blobs } from "../../../src/storage/blobs/s3.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { listening } from "../../support/listening.ts";
import { fakeBucket } from "../../support/s3/buckets.ts";
import type { S3Credentials } from "../../support/s3/sig-v4.ts";
import { watchSecret } from "../../support/secrets.ts";
import { tempDir } from "../../support/temp-dir.ts";

const MINUTE_MS = 60_000;
const BYTES = Buffer.from("an image");
const KEY = "outputs/b/1";

/** The nth keys of a role. */
function keysOf(n: number): Required<S3Credentials> {
  const keys = {
    accessKeyId: `ASIAROLE000000000${n}`,
    secretAccessKey: `secret-of-the-role-${n}-abcdefghij`,
    sessionToken: `token-of-the-session-${n}-abcdefghij`,
  };
  watchSecret(keys.secretAccessKey);
  watchSecret(keys.sessionToken);
  return keys;
}

interface Asked {
  authorization: string | undefined;
  body: string;
}

/** A local stand-in for a source of keys. */
async function source(answer: (n: number) => string) {
  const asked: Asked[] = [];
  const url = await listening(
    createServer(async (request: IncomingMessage, response) => {
      const body = await text(request);
      asked.push({ authorization: request.headers.authorization, body });
      response.end(answer(asked.length));
    }),
  );
  return { url, asked };
}

const expiresIn = (ms: number) => new Date(Date.now() + ms).toISOString();

/** As the agents of ECS and EKS answer. */
function ofContainer(n: number, lifeMs: number): string {
  const { accessKeyId, secretAccessKey, sessionToken } = keysOf(n);
  return JSON.stringify({
    AccessKeyId: accessKeyId,
    SecretAccessKey: secretAccessKey,
    Token: sessionToken,
    Expiration: expiresIn(lifeMs),
  });
}

/** As Amazon's token service answers. */
function ofTokenService(n: number): string {
  const { accessKeyId, secretAccessKey, sessionToken } = keysOf(n);
  return `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
    <AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/images/s</Arn><AssumedRoleId>AROA:s</AssumedRoleId></AssumedRoleUser>
    <Credentials><AccessKeyId>${accessKeyId}</AccessKeyId><SecretAccessKey>${secretAccessKey}</SecretAccessKey>
      <SessionToken>${sessionToken}</SessionToken><Expiration>${expiresIn(60 * MINUTE_MS)}</Expiration></Credentials>
  </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`;
}

/** A bucket that takes the first keys of the role alone. */
async function bucketOfRole() {
  const { fake, settings } = await fakeBucket({ clock: new InstantClock() });
  fake.credentials = keysOf(1);
  const { accessKeyId: _, secretAccessKey: __, ...place } = settings;
  return { fake, blobs: s3Blobs({ ...place, roleKeys: await roleKeys("s3://images") }) };
}

const OF_AMAZON = [
  "AWS_ACCESS_KEY_ID",
  "AWS_SECRET_ACCESS_KEY",
  "AWS_SESSION_TOKEN",
  "AWS_PROFILE",
  "AWS_WEB_IDENTITY_TOKEN_FILE",
  "AWS_ROLE_ARN",
  "AWS_CONTAINER_CREDENTIALS_FULL_URI",
  "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
];

beforeEach(async () => {
  for (const name of OF_AMAZON) vi.stubEnv(name, undefined);
  // Nothing of the person who runs the tests, nor of the machine.
  vi.stubEnv("HOME", await tempDir());
  vi.stubEnv("AWS_EC2_METADATA_DISABLED", "true");
});

describe("the keys of a role", () => {
  it("[S3-4] are those of a container, and others before they expire, without a request that fails", async () => {
    const agent = await source((n) => ofContainer(n, n === 1 ? 4 * MINUTE_MS : 60 * MINUTE_MS));
    const token = "token-for-the-agent-of-the-container";
    watchSecret(token);
    vi.stubEnv("AWS_CONTAINER_CREDENTIALS_FULL_URI", `${agent.url}/v1/credentials`);
    vi.stubEnv("AWS_CONTAINER_AUTHORIZATION_TOKEN", token);
    const { fake, blobs } = await bucketOfRole();
    await blobs.put(KEY, BYTES);
    await expect.poll(() => agent.asked.length).toBe(2);
    expect(agent.asked[0]?.authorization).toBe(token);
    fake.credentials = keysOf(2);
    await expect.poll(() => blobs.put(KEY, BYTES).then(() => "stored", String)).toBe("stored");
    const before = fake.requests.length;
    for (let i = 0; i < 5; i++) expect(await blobs.read(KEY)).toEqual(BYTES);
    expect(fake.requests.slice(before).map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect(agent.asked).toHaveLength(2);
  });

  it("[S3-4] are those of a web identity, whose token is read from its file and sent for the role", async () => {
    const service = await source(ofTokenService);
    const [file, token] = [join(await tempDir(), "token"), "identity-token-of-the-account"];
    await writeFile(file, token);
    vi.stubEnv("AWS_WEB_IDENTITY_TOKEN_FILE", file);
    vi.stubEnv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/images");
    vi.stubEnv("AWS_ENDPOINT_URL_STS", service.url);
    vi.stubEnv("AWS_REGION", "eu-central-1");
    const { blobs } = await bucketOfRole();
    await blobs.put(KEY, BYTES);
    expect(await blobs.read(KEY)).toEqual(BYTES);
    const [{ body } = { body: "" }, ...more] = service.asked;
    expect(more).toEqual([]);
    expect(Object.fromEntries(new URLSearchParams(body))).toMatchObject({
      Action: "AssumeRoleWithWebIdentity",
      RoleArn: "arn:aws:iam::123456789012:role/images",
      WebIdentityToken: token,
    });
  });

  it("[S3-4] that cannot be had end the start with what to set, and without what the source has answered", async () => {
    const refused = () => roleKeys("s3://images").catch((error) => error);
    expect(await refused()).toMatchObject({
      code: "INVALID_CONFIG",
      message: expect.stringContaining(
        "s3://images needs keys: AWS_ACCESS_KEY_ID is not set, and this process has no role",
      ),
      advice: expect.stringContaining("or give this process a role"),
    });
    const secret = keysOf(1).secretAccessKey;
    const broken = await source(() => secret);
    vi.stubEnv("AWS_CONTAINER_CREDENTIALS_FULL_URI", broken.url);
    const error = await refused();
    expect(error.message).toContain("the answer cannot be read");
    expect(inspect(error, { depth: 9 })).not.toContain(secret.slice(0, 9));
  });
});
