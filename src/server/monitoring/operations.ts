import { PATHS } from "../../contract/routes.ts";
import type { Surface } from "../operation.ts";
import { health } from "./health.ts";
import { readiness } from "./readiness.ts";

/** Operations for the people and programs that run the service. They need no key. */
export const monitoring: Surface = {
  tag: "operations",
  prefix: "/",
  credential: null,
  operations: [
    {
      id: "getHealth",
      method: "get",
      path: PATHS.health,
      summary: "The service is alive",
      parameters: ["Challenge"],
      answers: { 200: { description: "It is.", schema: "Health" } },
      errors: ["BATCH_IMAGE_INVALID_QUERY"],
      handler: health,
    },
    {
      id: "getReadiness",
      method: "get",
      path: PATHS.ready,
      summary: "The service is ready to work",
      answers: {
        200: { description: "It is.", schema: "Readiness" },
        503: { description: "The service is not ready; `problems` has the reasons.", schema: "Readiness" },
      },
      handler: readiness,
    },
    {
      id: "getMetrics",
      method: "get",
      path: PATHS.metrics,
      summary: "Numbers for monitoring, in the Prometheus text format",
      answers: { 200: { description: "The numbers.", bytes: ["text/plain"] } },
      handler: ({ metrics }) => metrics.answer,
    },
    {
      id: "getOpenApi",
      method: "get",
      path: PATHS.openApi,
      summary: "This description",
      answers: { 200: { description: "An OpenAPI 3.1 document.", schema: "OpenApi" } },
      handler: ({ openApi }) => openApi,
    },
  ],
};
