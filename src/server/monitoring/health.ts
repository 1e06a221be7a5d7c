import type { RequestHandler } from "express";
import { CHALLENGE, ownershipProof } from "../../contract/data-directory.ts";
import type { ApiDeps } from "../deps.ts";
import { invalidQuery, queryText } from "../query/query.ts";

/** `GET /healthz`: the service is alive. With a challenge it also proves that it owns its data directory. */
export function health({ secret }: Pick<ApiDeps, "secret">): RequestHandler {
  return (request, response) => {
    const challenge = queryText(request, "challenge");
    if (challenge === undefined) return void response.json({ status: "ok" });
    if (!CHALLENGE.test(challenge))
      throw invalidQuery("challenge", "must be 32 to 128 of the characters A-Z, a-z, 0-9, _ and -");
    // The port that the request came in on, whatever its headers claim.
    const proof = ownershipProof(secret, challenge, request.socket.localPort ?? 0);
    response.json({ status: "ok", proof });
  };
}
