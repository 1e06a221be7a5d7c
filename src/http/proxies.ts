import { BlockList, isIP } from "node:net";
import { ImgbatchError } from "../contract/errors.ts";
import { secretOf } from "../environment.ts";

/** A proxy of the environment. */
export interface HttpProxy {
  url: URL;
  /** Its host and port with the variable that names it, for messages: without user and password. */
  shown: string;
}

/** Returns the proxy for requests to an address; null where none is to be asked. */
export type Proxies = (target: URL) => HttpProxy | null;

/**
 * Reads `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in either case, as other programs do: the lower case counts first, `host:port` means
 * `http://host:port`, and an address of https takes the proxy of http where it has none of its own. This machine is never
 * reached through a proxy. The result throws `USAGE`, naming the variable, for a value that is no address of a proxy.
 * `variable`: returns the value of a variable, null when it is not set or empty.
 */
export function proxiesOf(variable: (name: string) => string | null): Proxies {
  const named = (name: string) => {
    for (const each of [name, name.toUpperCase()]) {
      const value = variable(each)?.trim();
      if (value) return { name: each, value };
    }
    return null;
  };
  return (target) => {
    if (isThisMachine(target.hostname)) return null;
    const http = named("http_proxy");
    const found = target.protocol === "https:" ? (named("https_proxy") ?? http) : http;
    if (found === null || isExempt(target, named("no_proxy")?.value ?? "")) return null;
    return readProxy(found);
  };
}

/** The proxies of this process's own environment. */
export const environmentProxies: Proxies = proxiesOf(secretOf);

function readProxy({ name, value }: { name: string; value: string }): HttpProxy {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(value)?.[1]?.toLowerCase();
  const text = scheme === undefined ? `http://${value}` : value;
  const url = URL.canParse(text) ? new URL(text) : null;
  const isHttp = url?.protocol === "http:" || url?.protocol === "https:";
  // A password may stand anywhere in what cannot be read, so that the value is not shown.
  if (url === null || !isHttp || /[/?#]/.test(text.slice(url.protocol.length + 2).replace(/\/$/, "")))
    throw new ImgbatchError("USAGE", `${name} ${whyNot(scheme)}.`, {
      param: name,
      advice: `write it like ${name}=http://proxy.example:3128, or unset ${name}`,
    });
  return { url, shown: `${url.host} (${name})` };
}

function whyNot(scheme: string | undefined): string {
  if (scheme === undefined || scheme === "http" || scheme === "https") return "is not the address of a proxy";
  return `names a proxy of the kind ${scheme}://, and only http:// and https:// proxies are supported`;
}

const THIS_MACHINE = new BlockList();
THIS_MACHINE.addSubnet("127.0.0.0", 8);
THIS_MACHINE.addAddress("0.0.0.0");
THIS_MACHINE.addAddress("::1", "ipv6");
THIS_MACHINE.addAddress("::", "ipv6");

function isThisMachine(hostname: string): boolean {
  const host = bare(hostname);
  return isIn(THIS_MACHINE, host) || /^(?:.+\.)?localhost$/.test(host);
}

const bare = (hostname: string) => hostname.toLowerCase().replace(/^\[|\]$|\.$/g, "");

function isIn(list: BlockList, address: string): boolean {
  const family = isIP(address);
  return family !== 0 && list.check(address, family === 6 ? "ipv6" : "ipv4");
}

/**
 * Whether `NO_PROXY` names a target. Its parts stand between commas or blanks: `*`, a host (also for the hosts below it, with
 * or without a dot before it), an address or a subnet such as `10.0.0.0/8`; a port may follow.
 */
function isExempt({ hostname, port, protocol }: URL, list: string): boolean {
  const host = bare(hostname);
  const itsPort = port || (protocol === "https:" ? "443" : "80");
  return list.split(/[\s,]+/).some((part) => {
    if (part === "*") return true;
    const [, named = part, itsOwn] = /^(\[.*\]|[^:]*):(\d+)$/.exec(part) ?? [];
    if (named === "" || (itsOwn !== undefined && itsOwn !== itsPort)) return false;
    const [address = "", bits] = bare(named).split("/");
    if (bits !== undefined) return isInSubnet(host, address, Number(bits));
    const name = address.replace(/^\*?\./, "");
    return host === name || (name !== "" && isIP(host) === 0 && host.endsWith(`.${name}`));
  });
}

function isInSubnet(host: string, address: string, bits: number): boolean {
  const family = isIP(address);
  if (family === 0 || !Number.isInteger(bits) || bits < 0 || bits > (family === 6 ? 128 : 32)) return false;
  const subnet = new BlockList();
  subnet.addSubnet(address, bits, family === 6 ? "ipv6" : "ipv4");
  return isIn(subnet, host);
}
