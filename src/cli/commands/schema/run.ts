import { ImgbatchError } from "../../../contract/errors.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { DEFAULT_LIMITS } from "../../../contract/limits.ts";
import type { CommandResult, RunCommand } from "../../command-line/command-context.ts";
import { SCHEMAS } from "./schemas.ts";

const OPENAPI = "openapi";

/**
 * `imgbatch schema`: prints a JSON Schema, or the OpenAPI document of a service with the default limits. Without a name
 * it lists the names.
 */
export const run: RunCommand = async ({ arguments: [name] }) => {
  const names = [...Object.keys(SCHEMAS), OPENAPI];
  if (name === undefined) return printed(names);
  if (name === OPENAPI) {
    const { buildOpenApi } = await import("../../../server/openapi/document.ts");
    return printed(document(buildOpenApi(DEFAULT_LIMITS)));
  }
  const found = Object.hasOwn(SCHEMAS, name) ? SCHEMAS[name] : undefined;
  if (found === undefined)
    throw new ImgbatchError(
      "USAGE",
      `${JSON.stringify(name)} is not the name of a schema: use ${names.join(", ")}.`,
    );
  const { $schema, ...rest } = (await found.load()) as { $schema?: unknown };
  return printed(document({ $schema, title: found.title, ...rest }));
};

function document(value: object): string[] {
  return JSON.stringify(value, null, 2).split("\n");
}

function printed(lines: readonly string[]): CommandResult {
  return { exitCode: EXIT_CODES.ok.code, json: null, lines };
}
