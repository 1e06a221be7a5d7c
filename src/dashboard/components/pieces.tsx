import { Text } from "ink";
import type { Piece } from "./batch-columns.ts";

/** The pieces of one line, each in its own colour. */
export function Pieces({ pieces }: { pieces: readonly Piece[] }) {
  return pieces.map((piece, i) =>
    piece.color === undefined && !piece.isDim ? (
      piece.text
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a line keep their order
      <Text key={i} dimColor={piece.isDim === true} {...(piece.color ? { color: piece.color } : {})}>
        {piece.text}
      </Text>
    ),
  );
}
