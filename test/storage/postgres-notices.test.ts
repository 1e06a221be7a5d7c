import pg from "pg";
import { expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";
import { openNotices } from "../../src/storage/dialects/postgres.ts";
import { startPgProxy } from "../support/pg-proxy.ts";
import { hasPostgres, newDatabase } from "../support/postgres.ts";

it.skipIf(!hasPostgres)(
  "notices reach all processes, and come again after their connections were cut",
  async () => {
    const url = await newDatabase();
    const heard: string[] = [];
    const open = (name: string) => {
      const notices = openNotices(url, systemClock, (text) => heard.push(`${name} ${text}`));
      onTestFinished(() => notices.close());
      return notices;
    };
    const both = [open("one"), open("two")];
    const areListening = () => both.every(({ isListening }) => isListening);
    await expect.poll(areListening).toBe(true);
    both[0]?.send("a");
    await expect.poll(() => heard.sort()).toEqual(["one a", "two a"]);

    const client = new pg.Client({ connectionString: url });
    await client.connect();
    onTestFinished(() => client.end());
    // Other test files use the same server.
    const others =
      "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'imgbatch notices'";
    await client.query(others);
    await expect.poll(areListening).toBe(false);
    both[1]?.send("lost, and nothing fails");
    await expect.poll(areListening).toBe(true);
    both[1]?.send("b");
    await expect.poll(() => heard.slice().sort()).toEqual(["one a", "one b", "two a", "two b"]);
  },
);

it.skipIf(!hasPostgres)(
  "a connection for notices that dies without a word is made again, and the end does not wait for it",
  async () => {
    const url = new URL(await newDatabase());
    const proxy = await startPgProxy({ port: Number(url.port) });
    onTestFinished(() => proxy.close());
    url.port = String(proxy.port);
    const heard: string[] = [];
    const notices = openNotices(url.href, systemClock, (text) => heard.push(text));
    await expect.poll(() => notices.isListening).toBe(true);
    proxy.silence();
    await expect.poll(() => notices.isListening).toBe(false);
    await expect.poll(() => notices.isListening).toBe(true);
    for (const text of ["a", "b", "c"]) notices.send(text);
    await expect.poll(() => heard).toEqual(["a", "b", "c"]);
    proxy.silence();
    await notices.close();
    expect(proxy.connections).toBe(0);
  },
);
