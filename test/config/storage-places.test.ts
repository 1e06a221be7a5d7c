import { writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { describe, expect, it, vi } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import { LOCAL_STORAGE, type StorageFlags, storagePlaces } from "../../src/config/storage-places.ts";
import { readStorageEnvironment } from "../../src/environment.ts";
import { connectionOf } from "../../src/storage/dialects/postgres.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { hasPostgres, newDatabase } from "../support/postgres.ts";
import { watchSecret, watchText } from "../support/secrets.ts";
import { tempDir } from "../support/temp-dir.ts";

const AWS = { AWS_ACCESS_KEY_ID: "AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY: "wJalrXUtnFEMI/K7MDENG" };

function places(storage: object, flags: StorageFlags = {}, env: NodeJS.ProcessEnv = {}) {
  return storagePlaces(parseConfig({ storage }, "test").storage, flags, readStorageEnvironment(env));
}

describe("the places of the data", () => {
  it("are SQLite and files, unless a flag, the environment or the configuration says otherwise, in this order", () => {
    expect(storagePlaces(undefined, {}, readStorageEnvironment({}))).toEqual(LOCAL_STORAGE);
    const ofFile = { database: "postgres://file/d" };
    const env = { IMGBATCH_DATABASE_URL: "postgres://u:hidden-by-env@env/d" };
    expect(places(ofFile).database).toMatchObject({ name: "postgres://file/d" });
    expect(places(ofFile, {}, env).database).toMatchObject({
      url: "postgres://u:hidden-by-env@env/d",
      name: "postgres://env/d",
    });
    expect(places(ofFile, { database: "postgres://flag:7/d" }, env).database).toMatchObject({
      url: "postgres://flag:7/d",
      name: "postgres://flag:7/d",
    });
    expect(places(ofFile, { database: "sqlite" }, env).database).toEqual({ kind: "sqlite" });
  });

  it("have the S3 server and the region of a flag, and the connections of the configuration", () => {
    const s3 = { endpoint: "https://file.example", region: "eu-west-1" };
    const storage = { database: "postgres://h/d", blobs: "s3://b-c", s3, connections: 4 };
    const flags = { s3Endpoint: "http://flag.example:9000", s3Region: "garage" };
    expect(places(storage, {}, AWS)).toMatchObject({ database: { connections: 4 }, blobs: s3 });
    expect(places(storage, flags, AWS).blobs).toMatchObject({
      endpoint: flags.s3Endpoint,
      region: flags.s3Region,
    });
    expect(() => places(storage, { s3Endpoint: "flag.example" }, AWS)).toThrow(
      "--s3-endpoint: must be like https://host",
    );
    expect(() => places(storage, { s3Region: "a/b" }, AWS)).toThrow("--s3-region: must be the name");
    expect(() => places({ connections: 1 })).toThrow("storage.connections");
  });

  it("take user, password and keys from the environment", () => {
    const env = { PGUSER: "me", PGPASSWORD: "p&w/ord of the test", ...AWS };
    const { database, blobs } = places({ database: "postgres://h/d", blobs: "s3://b.c/d/e/" }, {}, env);
    const { searchParams } = new URL(database.kind === "postgres" ? database.url : "");
    expect([searchParams.get("user"), searchParams.get("password")]).toEqual(["me", "p&w/ord of the test"]);
    expect(blobs).toMatchObject({
      bucket: "b.c",
      prefix: "d/e",
      region: "us-east-1",
      accessKeyId: AWS.AWS_ACCESS_KEY_ID,
      secretAccessKey: AWS.AWS_SECRET_ACCESS_KEY,
    });
    const safe = places(
      { database: "postgres://h/d" },
      {},
      { PGSSLMODE: "require", PGSSLROOTCERT: "/ca" },
    ).database;
    expect(safe).toMatchObject({ url: "postgres://h/d?sslmode=require&sslrootcert=%2Fca" });
    expect(() => places({ database: "postgres://h/d" }, {}, { PGSSLMODE: "prefer" })).toThrow(
      "PGSSLMODE: must be",
    );
    const named = places({ database: "postgres://you@h/d" }, {}, { PGUSER: "me" }).database;
    expect(named).toMatchObject({ url: "postgres://you@h/d", name: "postgres://h/d" });
  });

  it.each([
    [{ database: "mysql://h/d" }, "storage.database: must be"],
    [{ database: "h/d" }, "storage.database: must be"],
    [{ database: "postgres://me:canary-of-the-file@h/d" }, "set PGPASSWORD"],
    [{ database: "postgresql://h/d?password=canary-of-the-file" }, "set PGPASSWORD"],
    [{ database: "postgres://127.0.0.1/d?host=db.example" }, "must have no parameters but"],
    [{ database: "postgres://127.0.0.1/d?host=/run/postgresql" }, "must have no parameters but"],
    [{ database: "postgres:///d?host=db.example" }, "must have no parameters but"],
    [{ database: "postgres:///d?host=/run&host=db.example" }, "must have no parameters but"],
    [{ database: "postgres://127.0.0.1/d?port=6543" }, "must have no parameters but"],
    [
      { database: "postgres://h/d?sslmode=prefer" },
      "sslmode (disable, no-verify, verify-ca, require or verify-full)",
    ],
    [{ database: "postgres://h/d?ssl=0" }, "must have no parameters but"],
    [{ database: "postgres://h/d?sslkey=/etc/key" }, "must have no parameters but"],
    [{ blobs: "s3://AKID:canary-of-the-file@b" }, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"],
    [{ blobs: "s3://B_ucket" }, "storage.blobs: must be"],
    [{ blobs: "https://b" }, "storage.blobs: must be"],
    [{ s3: { endpoint: "h" } }, "storage.s3.endpoint: must be like https://host"],
    [{ s3: { endpoint: "h:9000" } }, "storage.s3.endpoint: must be like https://host"],
    [{ s3: { endpoint: "http://AKID:canary-of-the-file@h" } }, "storage.s3.endpoint: must hold no keys"],
  ])("%j is an error that says what to do, and not the secret", (storage, problem) => {
    let message = "";
    try {
      parseConfig({ storage }, "some/file.json");
    } catch (error) {
      message = String(error);
    }
    expect(message).toContain(problem);
    expect(message).not.toContain("canary-of-the-file");
  });

  it.each(["host=db.example", "canary-of-the-variable", "options=-cx=y"])(
    "a parameter that is not known (%s) is refused in the environment too, and not told",
    (parameter) => {
      const env = { IMGBATCH_DATABASE_URL: `postgres://u:canary-of-the-variable@h/d?${parameter}` };
      expect(() => places({}, {}, env)).toThrow("IMGBATCH_DATABASE_URL: must have no parameters but");
      expect(() => places({}, {}, env)).not.toThrow("canary");
    },
  );

  it.each([
    ["postgres://db.example:7/d?sslmode=verify-full", "db.example", 7],
    ["postgres://[::1]/d", "::1", 5432],
    ["postgres:///d?host=/run/postgresql&port=6543", "/run/postgresql", 6543],
    ["postgres:///d", "localhost", 5432],
  ])("%s is connected to where it says", (database, host, port) => {
    for (const name of ["PGHOST", "PGPORT"]) vi.stubEnv(name, "");
    const place = places({ database }, {}, { PGUSER: "me", PGPASSWORD: "password-of-the-test" }).database;
    const client = new pg.Client(connectionOf(place.kind === "postgres" ? place.url : ""));
    expect(client).toMatchObject({ host, port, user: "me" });
  });

  it("that cannot be used end a command before anything else, without the secret in its words", async () => {
    const cwd = await tempDir();
    const secret = "canary-of-the-command-line";
    watchSecret(secret);
    const run = async (...args: string[]) => {
      const { code, stdout, stderr } = await runInProcess([...args, "--data", cwd], { cwd });
      watchText(stdout + stderr, "the output");
      return { code, stderr };
    };
    const typed = await run("admin", "keys", "list", "--database", `postgres://me:${secret}@127.0.0.1/d`);
    expect(typed).toMatchObject({ code: 2, stderr: expect.stringContaining("set PGPASSWORD") });
    const keyless = await run("serve", "--blobs", "s3://bucket");
    expect(keyless).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("AWS_ACCESS_KEY_ID is not set"),
    });
    const wrong = await run("serve", "--blobs", "ftp://bucket");
    expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining("next: correct --blobs") });
    const alone = await run("serve", "--role", "worker");
    expect(alone).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("add --database postgres://host/database --blobs s3://bucket/prefix"),
    });
    const split = await run("serve", "--database", "postgres://127.0.0.1/d");
    expect(split).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("add --blobs s3://bucket/prefix"),
    });
    writeFileSync(join(cwd, "shared.json"), '{"storage": {"database": "postgres://db.example/d"}}');
    const embedded = await run("list", "--config", "shared.json");
    expect(embedded).toMatchObject({ code: 2, stderr: expect.stringContaining("set IMGBATCH_BASE_URL") });
  });

  it.skipIf(!hasPostgres)("a database that refuses is named without its secret", async () => {
    const cwd = await tempDir();
    const url = new URL(`${await newDatabase()}-that-is-not-there`);
    url.password = "canary-of-the-variable";
    watchSecret(url.password);
    vi.stubEnv("IMGBATCH_DATABASE_URL", url.href);
    const { code, stdout, stderr } = await runInProcess(["admin", "keys", "list", "--json"], { cwd });
    watchText(stdout + stderr, "the output");
    expect(code).toBe(9);
    expect(stderr).toContain(`postgres://${url.host}${url.pathname}: `);
    expect(stdout + stderr).not.toContain("canary");
  });
});
