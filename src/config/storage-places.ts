import type { z } from "zod";
import { ImgbatchError } from "../contract/errors.ts";
import type { StorageEnvironment } from "../environment.ts";
import type { Config } from "./schema.ts";
import {
  blobsSchema,
  DATABASE_PARAMETERS,
  databaseSchema,
  hasKnownParameters,
  isDatabaseUrl,
  isSslMode,
  SSL_MODES,
  storageSchema,
} from "./storage-schema.ts";

export type DatabasePlace =
  | { kind: "sqlite" }
  | {
      kind: "postgres";
      /** With user and password: a secret. */
      url: string;
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
      accessKeyId: string;
      secretAccessKey: string;
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
}

/**
 * Finds where the data is: a flag wins over `IMGBATCH_DATABASE_URL`, which wins over the configuration. User, password and
 * keys come from the environment. Throws `INVALID_CONFIG` for a place that is none, that holds a secret, or whose keys
 * are not set. `storage` is that of the configuration; by default, SQLite and files.
 */
export function storagePlaces(
  storage: Config["storage"] | undefined,
  flags: StorageFlags,
  environment: StorageEnvironment,
): StoragePlaces {
  const configured = storage ?? storageSchema.parse({});
  return {
    database: databasePlace(configured.database, flags.database, environment),
    blobs: blobsPlace(
      { ...configured, blobs: checked("--blobs", flags.blobs, blobsSchema) ?? configured.blobs },
      environment,
    ),
  };
}

function databasePlace(
  configured: string,
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
  return { kind: "postgres", url: url.href, name: `${protocol}//${host}${pathname}` };
}

function blobsPlace({ blobs, s3 }: Config["storage"], { aws }: StorageEnvironment): BlobsPlace {
  if (blobs === "files") return { kind: "files" };
  const { hostname: bucket, pathname } = new URL(blobs);
  const prefix = pathname.replace(/^\/+|\/+$/g, "");
  const { accessKeyId, secretAccessKey, sessionToken } = aws;
  if (accessKeyId === undefined || secretAccessKey === undefined) {
    const missing = accessKeyId === undefined ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY";
    const advice =
      "export AWS_ACCESS_KEY_ID=<id>; export AWS_SECRET_ACCESS_KEY=<secret>, then run the same command again";
    throw invalid("storage.blobs", `${blobs} needs keys, and ${missing} is not set`, advice);
  }
  return {
    kind: "s3",
    bucket,
    prefix,
    region: s3.region,
    accessKeyId,
    secretAccessKey,
    name: blobs,
    ...(s3.endpoint === null ? {} : { endpoint: s3.endpoint }),
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
  advice = `correct ${what}, then run the same command again`,
): ImgbatchError {
  return new ImgbatchError("INVALID_CONFIG", `${what}: ${problem}.`, { advice });
}
