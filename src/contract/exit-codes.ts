/**
 * The exit codes of the process. Scripts rely on these numbers: within a major version none changes its meaning. The help text and the README are made from this table.
 */
export const EXIT_CODES = {
  ok: { code: 0, meaning: "everything asked for is done; files are on disk and verified", rerun: "-" },
  internal: { code: 1, meaning: "internal error", rerun: "yes" },
  usage: { code: 2, meaning: "usage or invalid input; nothing was sent", rerun: "after fixing" },
  auth: {
    code: 3,
    meaning: "not authenticated or not permitted, or batch images are switched off",
    rerun: "after fixing",
  },
  someFailed: {
    code: 4,
    meaning:
      "finished, some images failed, or a batch was cancelled or failed; `admin check` found something",
    rerun: "`retry`",
  },
  noImages: { code: 5, meaning: "finished with no usable image", rerun: "look first" },
  conflict: {
    code: 6,
    meaning:
      "conflict: key used with other content, directory of another run or version, data directory in use",
    rerun: "no",
  },
  temporary: {
    code: 7,
    meaning: "temporary: network, 5xx or 429 after the retries, outcome unknown, not ready yet",
    rerun: "yes, the same command",
  },
  money: { code: 8, meaning: "refused for money: cost limit or balance", rerun: "no" },
  saving: {
    code: 9,
    meaning: "the batch is fine, saving it here failed (disk, permission, checksum)",
    rerun: "`download`",
  },
  gone: { code: 10, meaning: "no such batch, or its outputs are gone", rerun: "no" },
  timeout: { code: 124, meaning: "`--timeout` reached; the batch goes on", rerun: "`wait`" },
  interrupted: { code: 130, meaning: "interrupted; the batch goes on", rerun: "the same command" },
  terminated: { code: 143, meaning: "terminated; the batch goes on", rerun: "the same command" },
} as const satisfies Record<string, { code: number; meaning: string; rerun: string }>;

export type ExitName = keyof typeof EXIT_CODES;
