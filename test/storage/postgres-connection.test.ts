import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";
import {
  connectionOf,
  isOpenToOthers,
  openNotices,
  openPostgres,
} from "../../src/storage/dialects/postgres.ts";
import { CERTIFICATE, KEY } from "../support/certificate.ts";
import { hasPostgres } from "../support/postgres.ts";
import { startPostgresServer } from "../support/postgres-server.ts";
import { tempDir } from "../support/temp-dir.ts";

/** The messages of the server: a request for a password by SCRAM, and that it takes no TLS. */
const SASL = Buffer.from("R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0", "latin1");

/** A server that begins with every client, asks for a password, and never ends a connection. */
async function server({ hasTls = false } = {}) {
  const sockets: Socket[] = [];
  const listening = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.once("data", (first) => {
      const asksForTls = first.readUInt32BE(4) === 80877103;
      if (!asksForTls) return void socket.write(SASL);
      if (!hasTls) return void socket.write("N");
      socket.write("S");
      const safe = new TLSSocket(socket, { isServer: true, key: KEY, cert: CERTIFICATE });
      safe.on("error", () => {});
      safe.once("data", () => safe.write(SASL));
    });
  });
  listening.listen(0, "127.0.0.1");
  await once(listening, "listening");
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => listening.close(resolve));
  });
  const { port } = listening.address() as AddressInfo;
  return { url: `postgres://me@localhost:${port}/d`, sockets };
}

const refusal = (url: string) =>
  openPostgres({ url }, systemClock).then(
    () => null,
    (error) => error,
  );

describe("a connection to PostgreSQL", () => {
  it("that needs a password, and has none, says so and is closed by the client", async () => {
    const { url, sockets } = await server();
    expect(await refusal(url)).toMatchObject({
      message: "The database cannot be used: the server asks for a password, and none is set.",
      advice: expect.stringContaining("PGPASSWORD"),
    });
    // The server would keep it for a minute, and the process with it.
    await expect
      .poll(() => sockets.every(({ readableEnded, destroyed }) => readableEnded || destroyed))
      .toBe(true);
  });

  it("by TLS names what is missing: a known authority, or TLS itself", async () => {
    const { url } = await server({ hasTls: true });
    for (const mode of ["require", "verify-full"]) {
      expect(await refusal(`${url}?sslmode=${mode}`)).toMatchObject({
        message: expect.stringContaining("self-signed certificate"),
        advice: expect.stringContaining("add sslrootcert="),
      });
    }
    const file = join(await tempDir(), "ca.pem");
    await writeFile(file, CERTIFICATE);
    const known = { message: expect.stringContaining("asks for a password") };
    expect(await refusal(`${url}?sslmode=require&sslrootcert=${file}`)).toMatchObject(known);
    expect(await refusal(`${url}?sslmode=no-verify`)).toMatchObject(known);
    const byAddress = url.replace("localhost", "127.0.0.1");
    expect(await refusal(`${byAddress}?sslrootcert=${file}`)).toMatchObject({
      advice: expect.stringContaining("host name of the certificate"),
    });
    expect(await refusal(`${byAddress}?sslmode=verify-ca&sslrootcert=${file}`)).toMatchObject(known);
    expect(await refusal(`${url}?sslrootcert=${file}.old`)).toMatchObject({
      code: "INVALID_CONFIG",
      message: expect.stringContaining(`sslrootcert: ${file}.old cannot be read (ENOENT)`),
    });
    const plain = await server();
    expect(await refusal(`${plain.url}?sslmode=require`)).toMatchObject({
      message: expect.stringContaining("does not support SSL"),
      advice: expect.stringContaining("turn on `ssl`"),
    });
  });

  it.skipIf(!hasPostgres)(
    "is encrypted and verified by a real server with a certificate, in its pool and for notices",
    async () => {
      const cert = join(await tempDir(), "ca.pem");
      await writeFile(cert, CERTIFICATE);
      const files = { "server.crt": CERTIFICATE, "server.key": KEY };
      const real = await startPostgresServer({ settings: { ssl: "on" }, files });
      onTestFinished(() => real.stop());
      const verified = `${real.url().replace("127.0.0.1", "localhost")}?sslmode=verify-full`;
      expect(await refusal(verified)).toMatchObject({ advice: expect.stringContaining("add sslrootcert=") });
      const url = `${verified}&sslrootcert=${cert}`;
      const database = await openPostgres({ url }, systemClock);
      const notices = openNotices(url, systemClock, () => {});
      await expect.poll(() => notices.isListening).toBe(true);
      const own = "pg_stat_activity join pg_stat_ssl using (pid) where application_name like 'imgbatch%'";
      expect(await real.sql(`select application_name, ssl from ${own} order by 1`)).toBe(
        "imgbatch|t\nimgbatch notices|t",
      );
      await notices.close();
      await database.close();
    },
  );

  it.each([
    ["postgres://db.example/d", true],
    ["postgres://db.example/d?sslmode=disable", true],
    ["postgres://db.example/d?sslmode=no-verify", false],
    ["postgres://db.example/d?sslmode=require", false],
    ["postgres://localhost/d", false],
    ["postgres://127.0.0.1/d", false],
    ["postgres://[::1]/d", false],
    ["postgres:///d?host=/run/postgresql", false],
    ["postgres:///d", false],
  ])("to %s can be read by others on the network: %s", (url, isOpen) => {
    expect(isOpenToOthers(connectionOf(url))).toBe(isOpen);
  });
});
