import { describe, expect, it } from "vitest";
import { isPrivateAddress, isPrivateHost } from "../../src/http/addresses.ts";

const PRIVATE = [
  "127.0.0.1",
  "127.9.9.9",
  "10.1.2.3",
  "172.16.0.1",
  "172.31.255.255",
  "192.168.1.1",
  "169.254.169.254",
  "100.64.0.1",
  "100.127.255.255",
  "0.0.0.0",
  "192.0.0.1",
  "198.18.0.1",
  "224.0.0.1",
  "255.255.255.255",
  "::",
  "::1",
  "::127.0.0.1",
  "::ffff:127.0.0.1",
  "::ffff:7f00:1",
  "::ffff:a9fe:a9fe",
  "fe80::1",
  "fe80::1%eth0",
  "fc00::1",
  "fd12:3456::1",
  "ff02::1",
  "64:ff9b::10.0.0.1",
  "64:ff9b::7f00:1",
  "2002:7f00:1::",
  "2001:db8::1",
];
const PUBLIC = ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"];

describe("addresses outside the public internet", () => {
  it("are known in every spelling", () => {
    expect(PRIVATE.filter((address) => !isPrivateAddress(address))).toEqual([]);
    expect(PUBLIC.filter(isPrivateAddress)).toEqual([]);
  });

  it("are known by their names where these show it", () => {
    const hosts = [
      "localhost",
      "gpu",
      "box.local",
      "a.localhost",
      "x.internal.",
      "[::1]",
      "[::ffff:7f00:1]",
      "10.0.0.1",
    ];
    expect(hosts.filter((host) => !isPrivateHost(host))).toEqual([]);
    expect(["example.com", "local.example.com", "[2606:4700::1]", "8.8.8.8"].filter(isPrivateHost)).toEqual(
      [],
    );
    expect(isPrivateHost(new URL("http://0x7f.1/").hostname)).toBe(true);
    expect(isPrivateHost(new URL("http://2130706433/").hostname)).toBe(true);
  });
});
