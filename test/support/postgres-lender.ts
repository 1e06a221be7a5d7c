import { createServer } from "node:net";
import { join } from "node:path";
import { systemClock } from "../../src/kernel/clock.ts";

/** In the directory of a run: who connects is told the address of the server. */
export const LENDER_SOCKET = "postgres.sock";

/** A database with all tables, and no rows. */
export const TEMPLATE = "template_imgbatch";

/**
 * Lends one PostgreSQL server to all test files of a run. It starts when the first of them asks, because that takes a
 * second. `parent`: where its own directory is made. Returns what stops it.
 */
export function lendPostgres(root: string, parent: string): () => Promise<void> {
  let starting: ReturnType<typeof start> | null = null;
  const lender = createServer((socket) => {
    starting ??= start(parent);
    starting.then(
      ({ url }) => socket.end(url("")),
      (error) => socket.destroy(error),
    );
  });
  lender.listen(join(root, LENDER_SOCKET));
  return async () => {
    lender.close();
    await (await starting?.catch(() => null))?.stop();
  };
}

async function start(parent: string) {
  const { startPostgresServer } = await import("./postgres-server.ts");
  const { openPostgres } = await import("../../src/storage/dialects/postgres.ts");
  const { migrate } = await import("../../src/storage/foundation.ts");
  const settings = { max_connections: "300", deadlock_timeout: "100ms" };
  const server = await startPostgresServer({ parent, settings });
  await server.sql(`create database ${TEMPLATE}`);
  const database = await openPostgres({ url: server.url(TEMPLATE) }, systemClock);
  await migrate(database);
  await database.close();
  return server;
}
