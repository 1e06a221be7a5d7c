import { connect } from "node:net";
import { Readable } from "node:stream";
import express from "express";
import { describe, expect, it, onTestFinished } from "vitest";
import { sendDownload } from "../../../src/server/http/downloads.ts";
import { DownloadSlots } from "../../../src/server/http/limits.ts";
import { listen } from "../../../src/server/listen.ts";
import { gate } from "../../support/gate.ts";

const MIB = 1024 * 1024;
/** A server of one download for one key, one at a time; `ended` resolves with how the first one ended. */
async function downloadServer(options: { bytes?: number; open?: () => Readable }) {
  const { bytes = 64 * MIB } = options;
  const chunk = Buffer.alloc(MIB);
  const whole = () => Readable.from(Array.from({ length: bytes / MIB }, () => chunk));
  const slots = new DownloadSlots(1);
  const ended = gate<unknown>();
  const app = express().get("/", (request, response) => {
    const download = {
      ...{ sizeBytes: bytes, etag: "e", mimeType: "application/zip", fileName: "a.zip" },
      open: options.open ?? whole,
    };
    sendDownload(request, response, download, () => slots.take("key")).then(ended.open, (error) => {
      response.destroy();
      ended.open(error);
    });
  });
  const address = { host: "127.0.0.1", port: 0 };
  const server = await listen(app, address, { bounds: { stallMs: 300 } });
  onTestFinished(() => server.close(0));
  return { url: server.url, slots, ended: ended.promise };
}

/** Asks for the download and gives the connection to `read`. */
function reader(url: string) {
  const socket = connect(Number(new URL(url).port), "127.0.0.1", () => {
    socket.write("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  });
  socket.on("error", () => {});
  return socket;
}

describe("the place of a download", () => {
  it("comes back from a reader that stands still", async () => {
    const { url, slots, ended } = await downloadServer({});
    const socket = reader(url);
    socket.pause();
    expect(await ended).toBe(false);
    slots.take("key")();
    socket.destroy();
  });

  it("comes back when the reader goes away, and when the bytes cannot be read", async () => {
    const gone = await downloadServer({});
    const socket = reader(gone.url);
    socket.once("data", () => socket.destroy());
    expect(await gone.ended).toBe(false);
    gone.slots.take("key")();
    const failing = () => {
      throw new Error("the disk is gone");
    };
    const broken = await downloadServer({ open: failing });
    reader(broken.url).resume();
    expect(await broken.ended).toBeInstanceOf(Error);
    broken.slots.take("key")();
  });
});
