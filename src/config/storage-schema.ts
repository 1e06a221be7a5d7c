import { z } from "zod";

/** Whether a text is the URL of a PostgreSQL database, such as `postgres://host:5432/name`. */
export function isDatabaseUrl(text: string): boolean {
  return /^postgres(ql)?:$/.test(protocolOf(text));
}

/** The values of `sslmode` with which a database can be used, in words. */
export const SSL_MODES = "disable, no-verify, verify-ca, require or verify-full";

export const isSslMode = (text: string) => SSL_MODES.split(/, | or /).includes(text);

/** The parameters that the URL of a database may have, in words. */
export const DATABASE_PARAMETERS = `must have no parameters but user, sslmode (${SSL_MODES}) and sslrootcert, each once, and for a socket host (its directory) and port`;

/**
 * Whether a URL has only known parameters. The driver takes most of its settings from them, and they win over the URL
 * itself: with any other one, what the URL seems to name is not where the password goes.
 */
export function hasKnownParameters(text: string): boolean {
  const { hostname, searchParams } = new URL(text);
  return [...searchParams].every(([name, value]) => {
    if (searchParams.getAll(name).length > 1) return false;
    if (name === "host") return hostname === "" && value.startsWith("/");
    if (name === "port") return searchParams.has("host") && /^\d+$/.test(value);
    if (name === "sslmode") return isSslMode(value);
    return ["user", "password", "sslrootcert"].includes(name);
  });
}

/** Whether the URL of a database holds a password. */
function hasPassword(text: string): boolean {
  const { password, searchParams } = new URL(text);
  return password !== "" || searchParams.has("password");
}

const BUCKET = /^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](\/[\w!.*'()-]+)*\/?$/;

/** Where accounts, batches and money are kept: `sqlite`, or the URL of a PostgreSQL database without its password. */
export const databaseSchema = z
  .string()
  .refine((text) => text === "sqlite" || isDatabaseUrl(text), {
    error: 'must be "sqlite" or like postgres://host/database',
    abort: true,
  })
  .refine((text) => text === "sqlite" || !hasPassword(text), {
    error:
      "must hold no password: remove it here and set PGPASSWORD, or the whole URL in IMGBATCH_DATABASE_URL",
    abort: true,
  })
  .refine((text) => text === "sqlite" || hasKnownParameters(text), DATABASE_PARAMETERS);

/** Where images are kept: `files`, or a bucket with a prefix. */
export const blobsSchema = z
  .string()
  .refine((text) => protocolOf(text) !== "s3:" || !text.includes("@"), {
    error: "must hold no keys: remove them here and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    abort: true,
  })
  .refine((text) => text === "files" || BUCKET.test(text), {
    error: 'must be "files" or like s3://bucket or s3://bucket/prefix',
  });

/** The S3 server of a bucket. */
const s3Schema = z.strictObject({
  endpoint: z
    .url({ protocol: /^https?$/, error: "must be like https://host" })
    .refine((text) => new URL(text).username === "", "must hold no keys")
    .nullable()
    .default(null)
    .describe("the URL of the S3 server; null: Amazon's, in the region"),
  region: z
    .string()
    .regex(/^[\w-]+$/, "must be the name of a region")
    .default("us-east-1"),
});

/** Where the service keeps its data. */
export const storageSchema = z.strictObject({
  database: databaseSchema
    .default("sqlite")
    .describe("sqlite: a file of the data directory; or postgres://host/database, without a password"),
  blobs: blobsSchema
    .default("files")
    .describe(
      "files: those of the data directory; or s3://bucket/prefix, without which PostgreSQL is not used",
    ),
  s3: s3Schema.prefault({}),
});

function protocolOf(text: string): string {
  return URL.canParse(text) ? new URL(text).protocol : "";
}
