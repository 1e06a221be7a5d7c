import { listAt, textAt, valueAt } from "./read-json.ts";

/** The facts of an error body, whatever its shape. */
export interface ErrorFacts {
  /** The HTTP status that the body names; null when it names none. */
  status: number | null;
  /** All codes, types, states and reasons of the error, in capitals: `INSUFFICIENT_QUOTA`. */
  codes: readonly string[];
  /** Empty when there is none. */
  message: string;
  quotaIds: readonly string[];
  retryDelays: readonly string[];
  /** The body shows why the content was flagged. */
  isModerated: boolean;
}

/** Returns the `error` of a body that has one, also of a list with such a body as its first entry; else undefined. */
export function errorOf(body: unknown): unknown {
  const error = valueAt(Array.isArray(body) ? body[0] : body, "error");
  return error === null || error === false || error === "" ? undefined : error;
}

/** Reads the shapes `{error: {…}}`, `{error: "text", code?}`, `{message}`, `{detail}` and a list of these. */
export function readErrorFacts(body: unknown): ErrorFacts {
  const root = Array.isArray(body) ? body[0] : body;
  const error = errorOf(root) ?? root;
  const details = listAt(error, "details");
  const code = valueAt(error, "code") ?? valueAt(root, "code");
  const texts = [
    code,
    valueAt(error, "type"),
    valueAt(error, "status"),
    ...["innererror", "inner_error"].map((inner) => valueAt(error, inner, "code")),
    ...details.map((detail) => valueAt(detail, "reason")),
  ].filter((each) => typeof each === "string" && each.length <= 100) as string[];
  const violations = details.flatMap((detail) => listAt(detail, "violations"));
  return {
    status: statusIn(code),
    codes: texts.map((text) => text.trim().replaceAll(/[ -]/g, "_").toUpperCase()),
    message: messageOf(error) ?? messageOf(root) ?? "",
    quotaIds: violations.flatMap((violation) => textAt(violation, "quotaId") ?? []),
    retryDelays: details.flatMap((detail) => textAt(detail, "retryDelay") ?? []),
    isModerated:
      valueAt(error, "moderation_details") !== undefined ||
      valueAt(error, "metadata", "flagged_input") !== undefined ||
      listAt(error, "metadata", "reasons").length > 0,
  };
}

function statusIn(code: unknown): number | null {
  const status = typeof code === "string" && /^\d{3}$/.test(code) ? Number(code) : code;
  return typeof status === "number" && Number.isInteger(status) && status >= 400 && status <= 599
    ? status
    : null;
}

function messageOf(error: unknown): string | null {
  if (typeof error === "string") return error || null;
  const fields = listAt(error, "detail")
    .map(fieldProblem)
    .filter((problem) => problem !== "");
  return textAt(error, "message") ?? textAt(error, "detail") ?? (fields.join("; ") || null);
}

/** FastAPI's form of a field that is wrong: `{loc: ["body", "steps"], msg}`. */
function fieldProblem(problem: unknown): string {
  const path = listAt(problem, "loc").filter((part) => typeof part === "string" || typeof part === "number");
  const words = textAt(problem, "msg") ?? "";
  return path.length === 0 || words === "" ? words : `${path.join(".")}: ${words}`;
}
