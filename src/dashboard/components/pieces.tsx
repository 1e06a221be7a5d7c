import { Text } from "ink";
import type { Piece } from "./batch-columns.ts";

/** Pieces of one line, each with its look. */
export function Pieces({ pieces }: { pieces: readonly Piece[] }) {
  return pieces.map((piece, i) =>
    piece.color === undefined && !piece.isDim ? (
      piece.text
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a line keep their places
      <Text key={i} dimColor={piece.isDim === true} {...(piece.color ? { color: piece.color } : {})}>
        {piece.text}
      </Text>
    ),
  );
}
