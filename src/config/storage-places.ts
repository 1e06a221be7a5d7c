import { z } from "zod";
import { ImgbatchError } from "../contract/errors.ts";
import type { StorageEnvironment } from "../environment.ts";

export type DatabasePlace =
  | { kind: "sqlite" }
  | {
      kind: "postgres";
      /** With user and password: a secret. */
      url: string;
      /** How many connections a process has at most, besides the one for notices. Default: 10. */
      connections?: number;
      /** The URL without user, password and parameters, for people. */
      name: string;
    };

export type BlobsPlace =
  | { kind: "files" }
  | {
      kind: "s3";
      bucket: string;
      /** Without slashes around it; may be empty. */
      prefix: string;
      /** Default: Amazon's endpoint of the region. */
      endpoint?: string;
      region: string;
      /** Left out with `secretAccessKey`: those of the role of this process. */
      accessKeyId?: string;
      secretAccessKey?: string;
      sessionToken?: string;
      /** `s3://bucket/prefix`, for people. */
      name: string;
    };

/** Where a service keeps its data, with the secrets that it needs for that. */
export interface StoragePlaces {
  database: DatabasePlace;
  blobs: BlobsPlace;
}

/** SQLite and files in the data directory. */
export const LOCAL_STORAGE: StoragePlaces = { database: { kind: "sqlite" }, blobs: { kind: "files" } };

/** The places that a command line names. */
export interface StorageFlags {
  database?: string | undefined;
  blobs?: string | undefined;
  s3Endpoint?: string | undefined;
  s3Region?: string | undefined;
}

/**
 * Finds where the data is: a flag wins over `IMGBATCH_DATABASE_URL`, which wins over the configuration. User, password and
 * keys come from the environment. Throws `INVALID_CONFIG` for a place that is none, that holds a secret, or that has
 * only one of its two keys. `storage` is that of the configuration; by default, SQLite and files.
 */
export function storagePlaces(
  storage: StorageConfig | undefined,
  flags: StorageFlags,
  environment: StorageEnvironment,
): StoragePlaces {
  const configured = storage ?? storageSchema.parse({});
  const blobs = checked("--blobs", flags.blobs, blobsSchema) ?? configured.blobs;
  const endpoint = checked("--s3-endpoint", flags.s3Endpoint, endpointSchema) ?? configured.s3.endpoint;
  const region = checked("--s3-region", flags.s3Region, regionSchema) ?? configured.s3.region;
  return {
    database: databasePlace(configured, flags.database, environment),
    blobs: blobsPlace(blobs, { endpoint, region }, environment),
  };
}

function databasePlace(
  { database: configured, connections }: StorageConfig,
  flag: string | undefined,
  environment: StorageEnvironment,
): DatabasePlace {
  const { databaseUrl, databaseSslMode } = environment;
  const named = checked("--database", flag, databaseSchema);
  if (named === undefined && databaseUrl !== undefined) {
    if (!isDatabaseUrl(databaseUrl))
      throw invalid("IMGBATCH_DATABASE_URL", "must be like postgres://user:password@host/database");
    if (!hasKnownParameters(databaseUrl)) throw invalid("IMGBATCH_DATABASE_URL", DATABASE_PARAMETERS);
  }
  const place = named ?? databaseUrl ?? configured;
  if (place === "sqlite") return { kind: "sqlite" };
  const url = new URL(place);
  const { protocol, host, pathname, username, password, searchParams } = url;
  // As parameters they also fit to a URL without a host, which names a socket.
  const add = (name: string, value: string | undefined) => {
    if (value !== undefined && !searchParams.has(name)) searchParams.set(name, value);
  };
  if (username === "") add("user", environment.databaseUser);
  if (password === "") add("password", environment.databasePassword);
  if (!searchParams.has("sslmode")) {
    if (databaseSslMode !== undefined && !isSslMode(databaseSslMode))
      throw invalid("PGSSLMODE", `must be ${SSL_MODES}`);
    add("sslmode", databaseSslMode);
  }
  if (searchParams.has("sslmode")) add("sslrootcert", environment.databaseSslRootCert);
  return { kind: "postgres", url: url.href, connections, name: `${protocol}//${host}${pathname}` };
}

function blobsPlace(
  blobs: string,
  { endpoint, region }: StorageConfig["s3"],
  { aws }: StorageEnvironment,
): BlobsPlace {
  if (blobs === "files") return { kind: "files" };
  const { hostname: bucket, pathname } = new URL(blobs);
  const prefix = pathname.replace(/^\/+|\/+$/g, "");
  const { accessKeyId, secretAccessKey, sessionToken } = aws;
  if ((accessKeyId === undefined) !== (secretAccessKey === undefined)) {
    const missing = accessKeyId === undefined ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY";
    const advice =
      "export AWS_ACCESS_KEY_ID=<id>; export AWS_SECRET_ACCESS_KEY=<secret>, then run the same command again";
    throw invalid("storage.blobs", `${blobs} needs keys, and ${missing} is not set`, advice);
  }
  return {
    kind: "s3",
    bucket,
    prefix,
    region,
    name: blobs,
    ...(accessKeyId === undefined || secretAccessKey === undefined ? {} : { accessKeyId, secretAccessKey }),
    ...(endpoint === null ? {} : { endpoint }),
    ...(sessionToken === undefined ? {} : { sessionToken }),
  };
}

function checked(flag: string, text: string | undefined, schema: z.ZodType<string>): string | undefined {
  if (text === undefined) return undefined;
  const { error } = schema.safeParse(text);
  if (error) throw invalid(flag, error.issues[0]?.message ?? "is not right");
  return text;
}

function invalid(
  what: string,
  problem: string,
  advice = `correct ${what}, then run the command again`,
): ImgbatchError {
  return new ImgbatchError("INVALID_CONFIG", `${what}: ${problem}.`, { advice });
}

/** Whether a text is the URL of a PostgreSQL database, such as `postgres://host:5432/name`. */
function isDatabaseUrl(text: string): boolean {
  return /^postgres(ql)?:$/.test(protocolOf(text));
}

/** The values of `sslmode` with which a database can be used, in words. */
const SSL_MODES = "disable, no-verify, verify-ca, require or verify-full";

const isSslMode = (text: string) => SSL_MODES.split(/, | or /).includes(text);

/** The parameters that the URL of a database may have, in words. */
const DATABASE_PARAMETERS = `must have no parameters but user, sslmode (${SSL_MODES}) and sslrootcert, each once, and for a socket host (its directory) and port`;

/**
 * Whether a URL has only known parameters. The driver takes most of its settings from them, and they win over the URL
 * itself: with any other one, what the URL seems to name is not where the password goes.
 */
function hasKnownParameters(text: string): boolean {
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
const databaseSchema = z
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
const blobsSchema = z
  .string()
  .refine((text) => protocolOf(text) !== "s3:" || !text.includes("@"), {
    error: "must hold no keys: remove them here and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    abort: true,
  })
  .refine((text) => text === "files" || BUCKET.test(text), {
    error: 'must be "files" or like s3://bucket or s3://bucket/prefix',
  });

const endpointSchema = z
  .url({ protocol: /^https?$/, error: "must be like https://host", abort: true })
  .refine((text) => new URL(text).username === "", "must hold no keys");
const regionSchema = z.string().regex(/^[\w-]+$/, "must be the name of a region");

/** The S3 server of a bucket. */
const s3Schema = z.strictObject({
  endpoint: endpointSchema
    .nullable()
    .default(null)
    .describe("the URL of the S3 server; null: Amazon's, in the region"),
  region: regionSchema.default("us-east-1").describe("the region of the bucket"),
});

/** Where the service keeps its data. */
export const storageSchema = z.strictObject({
  database: databaseSchema
    .default("sqlite")
    .describe("sqlite: a file of the data directory; or postgres://host/database, without a password"),
  connections: z
    .int()
    .min(2)
    .max(1000)
    .default(10)
    .describe("how many connections each process has to PostgreSQL at most, besides one for notices"),
  blobs: blobsSchema
    .default("files")
    .describe(
      "files: those of the data directory; or s3://bucket/prefix, without which PostgreSQL is not used",
    ),
  s3: s3Schema.prefault({}).describe("the server of the bucket"),
});

type StorageConfig = z.infer<typeof storageSchema>;

function protocolOf(text: string): string {
  return URL.canParse(text) ? new URL(text).protocol : "";
}
