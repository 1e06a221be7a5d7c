import type { lookup as systemLookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";

/** The code of the error for an address that must not be asked. */
export const PRIVATE_ADDRESS = "PRIVATE_ADDRESS";

/** Looks names up, and fails with `PRIVATE_ADDRESS` for one that means an address outside the public internet. */
export function publicOnly(lookup: typeof systemLookup): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, []);
      const isRefused = addresses.some(({ address }) => isPrivateAddress(address));
      const [first] = addresses;
      if (isRefused || first === undefined) return callback(privateAddress(), []);
      if (options.all) return callback(null, addresses);
      callback(null, first.address, first.family);
    });
  };
}

function privateAddress(): NodeJS.ErrnoException {
  return Object.assign(new Error("not an address of the public internet"), { code: PRIVATE_ADDRESS });
}

/** Addresses of IPv4 that are not of the public internet (IANA's registry of special-purpose addresses). */
const SPECIAL_IPV4: readonly (readonly [string, number])[] = [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3],
];
const IPV4 = new BlockList();
/** The same in the addresses by which IPv6 networks reach IPv4 (RFC 6052). */
const TRANSLATED = new BlockList();
for (const [address, prefix] of SPECIAL_IPV4) {
  IPV4.addSubnet(address, prefix);
  TRANSLATED.addSubnet(`64:ff9b::${address}`, 96 + prefix, "ipv6");
}

/** All public addresses of IPv6 but the translated ones. */
const PUBLIC_IPV6 = new BlockList();
PUBLIC_IPV6.addSubnet("2000::", 3, "ipv6");
/** Tunnels, documentation, tests. */
const SPECIAL_IPV6 = new BlockList();
SPECIAL_IPV6.addSubnet("2001::", 23, "ipv6");
SPECIAL_IPV6.addSubnet("2001:db8::", 32, "ipv6");
SPECIAL_IPV6.addSubnet("2002::", 16, "ipv6");
SPECIAL_IPV6.addSubnet("3fff::", 20, "ipv6");
const TRANSLATION = new BlockList();
TRANSLATION.addSubnet("64:ff9b::", 96, "ipv6");
const MAPPED = new BlockList();
MAPPED.addSubnet("::ffff:0:0", 96, "ipv6");

/** Whether an IP address is not of the public internet: loopback, private, link-local, shared, reserved. */
export function isPrivateAddress(address: string): boolean {
  const bare = address.replace(/%.*$/, "");
  if (isIP(bare) !== 6) return IPV4.check(bare);
  if (MAPPED.check(bare, "ipv6")) return IPV4.check(bare, "ipv6");
  if (TRANSLATION.check(bare, "ipv6")) return TRANSLATED.check(bare, "ipv6");
  return !PUBLIC_IPV6.check(bare, "ipv6") || SPECIAL_IPV6.check(bare, "ipv6");
}

/** Whether a host of a URL is on this machine or in a private network, as far as its name shows. */
export function isPrivateHost(hostname: string): boolean {
  const bare = hostname.replace(/^\[|\]$/g, "").toLowerCase();
  if (isIP(bare) > 0) return isPrivateAddress(bare);
  return !bare.includes(".") || /\.(?:localhost|local|internal|lan|home\.arpa)\.?$/.test(bare);
}
