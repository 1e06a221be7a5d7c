import { PATHS } from "../../contract/routes.ts";
import { events } from "../events/events.ts";
import { authenticate, bearerErrors } from "../middleware/authenticate.ts";
import type { Surface } from "../operation.ts";
import { account } from "./account.ts";
import { ledger } from "./ledger.ts";
import { usage } from "./usage.ts";

/** The money of a key, and what changes for it. */
export const accountApi: Surface = {
  tag: "account",
  prefix: PATHS.account,
  operations: [
    {
      id: "getAccount",
      method: "get",
      path: PATHS.account,
      summary: "Balance and held money of the key's account, and the limits of one request",
      answers: { 200: { description: "The account.", schema: "Account" } },
      handler: account,
    },
    {
      id: "getUsage",
      method: "get",
      path: PATHS.usage,
      summary: "What this key paid for, by day and model",
      parameters: ["UsageFrom", "UsageTo"],
      answers: { 200: { description: "A line for each day and model, oldest first.", schema: "UsageList" } },
      errors: ["BATCH_IMAGE_INVALID_QUERY"],
      handler: usage,
    },
    {
      id: "getLedger",
      method: "get",
      path: PATHS.ledger,
      summary: "Movements of money of the key's account, newest first",
      parameters: ["LedgerLimit", "Cursor"],
      answers: { 200: { description: "A page of entries.", schema: "LedgerList" } },
      errors: ["BATCH_IMAGE_INVALID_QUERY"],
      handler: ledger,
    },
    {
      id: "streamEvents",
      method: "get",
      path: PATHS.events,
      summary:
        "What changes for this key, as server-sent events: ids alone, each batch at most once a second",
      answers: {
        200: {
          description: "Events `ready`, `batch`, `batch_deleted` and `account`, until the service stops.",
          bytes: ["text/event-stream"],
        },
      },
      handler: events,
    },
  ],
  credential: { schemes: ["apiKey"], authenticate, errors: bearerErrors },
};
