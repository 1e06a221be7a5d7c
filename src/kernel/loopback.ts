import { BlockList, isIP } from "node:net";

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8);
LOOPBACK.addAddress("::1", "ipv6");

/**
 * Whether a host is this machine itself: `localhost`, an address of 127.0.0.0/8, or `::1`. Takes a name, an address, or
 * an address in brackets as in a URL.
 */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[|\]$/g, "");
  const family = isIP(bare);
  return host === "localhost" || (family > 0 && LOOPBACK.check(bare, family === 6 ? "ipv6" : "ipv4"));
}
