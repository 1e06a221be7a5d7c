import { copyImage } from "../../api/clipboard.ts";
import type { ReferenceFile } from "../../api/reference-file.ts";
import { saveBlob } from "../../api/save-file.ts";
import { announce } from "../../parts/announcer.tsx";
import { Icon } from "../../parts/icons.tsx";
import { ErrorNote } from "../../parts/notes.tsx";
import { costOf } from "../../parts/words.ts";
import { type Shot, type ShotRequest, useShots } from "./shots.tsx";

/** An image of this tab, with what to do with it. */
export function ShotCard(props: {
  shot: Shot;
  onEdit: (request: ShotRequest, image: ReferenceFile) => void;
}) {
  const { shot, onEdit } = props;
  const { request, image, error } = shot;
  const { make, repeat } = useShots();
  const copy = (blob: Blob) =>
    copyImage(blob).then(
      () => announce("The image is copied."),
      (problem: Error) => announce(problem.message),
    );
  return (
    <article className="shot">
      {image && <img className="shot-image" src={image.url} alt={request.prompt} />}
      {!image && !error && (
        <div
          className="picture-waits"
          role="status"
          aria-label="The image is being made"
          style={{ aspectRatio: request.ratio?.replace(":", " / ") ?? "1" }}
        />
      )}
      <ErrorNote error={error} />
      <p className="shot-prompt" dir="auto">
        {request.prompt}
      </p>
      <p className="quiet small-text">
        {[
          request.model,
          request.ratio,
          request.size,
          image ? costOf(request.cost, request.isPlay, "exact") : null,
        ]
          .filter(Boolean)
          .join(" · ")}
      </p>
      <div className="actions">
        {error && (
          <button type="button" className="button" onClick={() => repeat(shot)}>
            <Icon name="retry" /> Try again
          </button>
        )}
        {image && (
          <>
            <button type="button" className="button primary" onClick={() => saveBlob(image.blob, image.name)}>
              <Icon name="download" /> Download
            </button>
            <button type="button" className="button" onClick={() => make(request)}>
              <Icon name="retry" /> Again
            </button>
            <button type="button" className="button" onClick={() => onEdit(request, image)}>
              <Icon name="edit" /> Edit this
            </button>
            <button type="button" className="button" onClick={() => copy(image.blob)}>
              <Icon name="copy" /> Copy
            </button>
          </>
        )}
      </div>
    </article>
  );
}
