import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import { batchDownload } from "../batch-api/operations.ts";
import { authenticate, bearerErrors } from "../middleware/authenticate.ts";
import type { Surface } from "../operation.ts";
import { overview, requireOwner } from "./overview.ts";
import { authenticateSignIn, makeCode, requireConsole, signIn, signOut } from "./sign-in.ts";
import { authenticateTicket } from "./tickets.ts";

const usesConsole = [requireConsole];
const off: readonly ServiceErrorCode[] = ["NOT_FOUND"];

/** Signing in to the web console. */
const signingIn: Surface = {
  tag: "console",
  prefix: PATHS.consoleSessions,
  operations: [
    {
      id: "signIn",
      method: "post",
      path: PATHS.consoleSessions,
      summary: "Begin a session of the web console, with a code or a key",
      answers: { 200: { description: "The session.", schema: "Session" } },
      errors: off,
      guards: usesConsole,
      handler: signIn,
    },
  ],
  credential: { schemes: ["signInCode", "apiKey"], authenticate: authenticateSignIn, errors: bearerErrors },
};

/** Operations of the web console for a person who is signed in, and for the command that makes a code. */
const signedIn: Surface = {
  tag: "console",
  prefix: PATHS.console,
  operations: [
    {
      id: "makeSignInCode",
      method: "post",
      path: PATHS.consoleCodes,
      summary: "A code that begins a session of the web console, once, within 10 minutes",
      answers: { 200: { description: "The code.", schema: "SignInCode" } },
      errors: off,
      guards: usesConsole,
      handler: makeCode,
    },
    {
      id: "getService",
      method: "get",
      path: PATHS.consoleService,
      summary: "Providers, queue, disk and the requests of all keys, for the key of `credentials.json`",
      answers: { 200: { description: "The service.", schema: "ServiceOverview" } },
      errors: [...off, "OWNER_ONLY"],
      guards: [...usesConsole, requireOwner],
      handler: overview,
    },
    {
      id: "signOut",
      method: "delete",
      path: PATHS.consoleSession,
      summary: "End the session whose token comes with the request",
      answers: { 204: { description: "It has ended." } },
      errors: off,
      guards: usesConsole,
      handler: signOut,
    },
  ],
  credential: { schemes: ["apiKey"], authenticate, errors: bearerErrors },
};

/** Downloads by a link that a browser follows without a key. */
const ticketDownloads: Surface = {
  tag: "console",
  prefix: "/v1/downloads",
  operations: [
    {
      ...batchDownload,
      id: "downloadByTicket",
      path: PATHS.ticketDownload,
      summary: "The ZIP of a batch, by the link of a ticket",
      parameters: [...(batchDownload.parameters ?? []), "Ticket"],
      errors: [...(batchDownload.errors ?? []), ...bearerErrors],
      guards: [authenticateTicket, ...(batchDownload.guards ?? [])],
    },
  ],
  credential: null,
};

/** The web console's own operations. Everything else that it shows comes from the other surfaces. */
export const consoleApis: readonly Surface[] = [signingIn, signedIn, ticketDownloads];
