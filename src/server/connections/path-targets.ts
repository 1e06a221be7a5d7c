import type { RequestListener } from "node:http";

/**
 * Lets a listener see only targets that are a path. The host of an absolute target (`GET http://host/path`) takes the
 * place of the Host header (RFC 9112, section 3.2.2). A target of any other kind leaves a Host that is not well formed.
 */
export function withPathTargets(listener: RequestListener): RequestListener {
  return (request, response) => {
    const target = request.url ?? "";
    if (!/^[/*]/.test(target)) {
      const [, host = target, rest = ""] = /^https?:\/\/([^/?#]*)(.*)$/i.exec(target) ?? [];
      request.headers.host = host;
      request.url = rest.startsWith("/") ? rest : `/${rest}`;
    }
    listener(request, response);
  };
}
