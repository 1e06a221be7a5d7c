import { z } from "zod";
import { inWords } from "./limits.ts";

/** The vendors whose APIs the service has, as a fault names them. */
export const VENDORS = ["openai", "google"] as const;
export type Vendor = (typeof VENDORS)[number];

const whole = (min: number, max: number) => {
  const error = `must be a whole number from ${min} to ${max}`;
  return z.int(error).min(min, error).max(max, error);
};
const words = (max: number) => {
  const error = `must be a text of 1 to ${max} characters`;
  return z.string(error).min(1, error).max(max, error);
};
const yes = z.literal(true, "must be true, or be left out");
const shareError = "must be a number above 0, at most 1";

/** What a fault may do. At most one of the first four: each decides alone what is answered. */
const ANSWERS = ["status", "empty", "refuse", "lost"] as const;
const CHANGES = ["delay_ms", "cut_after"] as const;

/** A fault as a test orders it: which requests it meets, and what happens to them. */
const fields = z.strictObject({
  times: whole(1, 1_000_000)
    .optional()
    .describe("how many requests it meets; default: 1, and with `share` all"),
  share: z
    .number(shareError)
    .gt(0, shareError)
    .max(1, shareError)
    .optional()
    .describe("instead of the next requests, this share of all that match, evenly: 0.25 meets every fourth"),
  surface: z
    .enum(VENDORS, `must be ${VENDORS.join(" or ")}`)
    .optional()
    .describe("only requests to the API of this vendor; default: of both"),
  model: words(200).optional().describe("only requests that name this model"),
  text: words(10_000).optional().describe("only requests with this text in their body"),
  status: whole(400, 599)
    .optional()
    .describe("an error of this HTTP status, in the vendor's own words; nothing is made"),
  retry_after: whole(0, 86_400).optional().describe("seconds in `Retry-After`; needs `status`"),
  delay_ms: whole(0, 600_000).optional().describe("how long the answer waits, or the work before it"),
  cut_after: whole(0, 1_000_000_000)
    .optional()
    .describe("the connection ends after this many bytes of the answer's body"),
  empty: yes.optional().describe("an answer without images; nothing is made"),
  refuse: words(500)
    .optional()
    .describe("a refusal for this reason, as the vendor gives it; nothing is made"),
  lost: yes.optional().describe("the picture is made and charged, and the connection ends without an answer"),
});

type Fields = z.infer<typeof fields>;

/** Combinations that make no sense: the field at fault, and what is wrong with it. Null when there is none. */
function conflict(fault: Fields): [field: keyof Fields, problem: string] | null {
  const has = (name: keyof Fields) => fault[name] !== undefined;
  const [first, second] = ANSWERS.filter(has);
  if (second !== undefined) return [second, `cannot stand beside ${first}: each is an answer of its own`];
  if (has("times") && has("share")) return ["share", "cannot stand beside times"];
  if (has("retry_after") && !has("status")) return ["retry_after", "needs status"];
  if (has("cut_after") && has("lost"))
    return ["cut_after", "cannot stand beside lost: there is no answer to cut"];
  if (first === undefined && !CHANGES.some(has))
    return [
      "status",
      `is required, or another of ${[...ANSWERS, ...CHANGES].join(", ")}: the fault does nothing`,
    ];
  return null;
}

const faultSchema = fields.superRefine((fault, check) => {
  const found = conflict(fault);
  if (found !== null) check.addIssue({ code: "custom", path: [found[0]], message: found[1] });
});
export type Fault = Fields;

export const FAULT_FIELDS = Object.keys(fields.shape);

/** Reads a fault. The error's first issue names the field and what would be right. */
export const readFault = (value: unknown) => faultSchema.safeParse(value, { error: inWords });

/** A request that the service has had, as the journal shows it. */
const testRequestSchema = z.object({
  method: z.string(),
  path: z.string().describe("without its query, as the table of endpoints has it"),
  body: z
    .unknown()
    .describe(
      "JSON as it came, the fields of a form, or a text; a long image is its size in words; null: there is none",
    ),
  answer: z.object({
    status: z.int().nullable().describe("null: there is no answer, or not yet"),
  }),
});
export type TestRequest = z.infer<typeof testRequestSchema>;

/** The schemas of the bodies, by their names in the OpenAPI document. */
export const testSchemas = {
  Fault: fields,
  FaultList: z.object({
    faults: z.array(fields.extend({ met: z.int().describe("how many requests it has met so far") })),
  }),
  TestRequestList: z.object({
    requests: z.array(testRequestSchema).describe("the oldest first"),
    forgotten: z.int().describe("how many older requests the journal has no room for"),
  }),
};
