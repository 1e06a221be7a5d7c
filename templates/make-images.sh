#!/usr/bin/env bash
# Makes the images of a prompt file. Tries again after temporary errors, and reports the step to take after others.
# Usage: ./make-images.sh [prompts.jsonl] [directory]
set -euo pipefail

prompts=${1:-prompts.jsonl}
directory=${2:-images-out}
tries=${TRIES:-5}
pause=${PAUSE:-30}

# Without imgbatch in PATH, npx runs IMGBATCH_PACKAGE: the file that `npm pack` writes, as ./imgbatch-{{version}}.tgz, or a
# package that you trust with its version.
if ! command -v imgbatch >/dev/null; then
  : "${IMGBATCH_PACKAGE:?imgbatch is not installed: install it, or set this variable to ./imgbatch-{{version}}.tgz}"
  imgbatch() { npx --yes "$IMGBATCH_PACKAGE" "$@"; }
fi

for ((try = 1; ; try++)); do
  code=0
  imgbatch submit "$prompts" --output "$directory" --junit "$directory.xml" || code=$?
  case $code in
    0)
      echo "done: $directory/index.html shows the images"
      exit 0
      ;;
    7)
      # A network error or overload. The same command finds its batch and pays nothing twice.
      if ((try >= tries)); then
        echo "still failing after $tries tries; run this script again later" >&2
        exit "$code"
      fi
      echo "trying again in $pause s ($try of $tries)" >&2
      sleep "$pause"
      ;;
    4)
      echo "some images failed: $directory/retry.jsonl has their prompts, $directory/results.jsonl says why" >&2
      exit "$code"
      ;;
    9)
      echo "the images are made, but could not be saved here: free the disk and run this script again" >&2
      exit "$code"
      ;;
    130 | 143)
      echo "stopped; run this script again to continue" >&2
      exit "$code"
      ;;
    *)
      echo "imgbatch exited with $code; its message above gives the reason (imgbatch --help lists the codes)" >&2
      exit "$code"
      ;;
  esac
done
