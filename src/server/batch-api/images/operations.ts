import type { ServiceErrorCode } from "../../../contract/errors.ts";
import { PATHS } from "../../../contract/routes.ts";
import { requireBatchGroup } from "../../middleware/authenticate.ts";
import type { Operation } from "../../operation.ts";
import { content } from "../content.ts";
import { deleteContent } from "./delete-content.ts";
import { conditions, downloadAnswers, headAnswers, ranges, unchanged } from "./download-answers.ts";
import { reference } from "./reference.ts";
import { thumbnail } from "./thumbnail.ts";
import { thumbnails } from "./thumbnails.ts";

const usesBatches = [requireBatchGroup];
const images = ["image/png", "image/jpeg", "image/webp"];

const contentErrors: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_NOT_FOUND",
  "BATCH_IMAGE_ITEM_NOT_FOUND",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_ITEM_FAILED",
  "BATCH_IMAGE_INVALID_QUERY",
  "BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE",
  "BATCH_IMAGE_RESULT_MISSING",
];
/** The images of items, small ones of them, and the images that items refer to. */
export const imageOperations: readonly Operation[] = [
  {
    id: "getItemContent",
    method: "get",
    path: PATHS.content,
    summary: "One image of an ended batch",
    parameters: ["BatchId", "CustomId", "ImageIndex", ...ranges],
    answers: downloadAnswers("The image.", images),
    errors: [...contentErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
    guards: usesBatches,
    handler: content,
  },
  {
    id: "headItemContent",
    method: "head",
    path: PATHS.content,
    summary: "Size, type and ETag of one image",
    parameters: ["BatchId", "CustomId", "ImageIndex", ...conditions],
    answers: headAnswers("the image"),
    errors: contentErrors,
    guards: usesBatches,
    handler: content,
  },
  {
    id: "deleteItemContent",
    method: "delete",
    path: PATHS.content,
    summary: "Delete the images of one item of an ended batch; the item and its payment stay",
    parameters: ["BatchId", "CustomId"],
    answers: { 204: { description: "The item has no images any more." } },
    errors: [
      "BATCH_IMAGE_NOT_FOUND",
      "BATCH_IMAGE_ITEM_NOT_FOUND",
      "BATCH_IMAGE_OUTPUT_DELETE_NOT_READY",
      "BATCH_IMAGE_QUEUE_FAILED",
    ],
    guards: usesBatches,
    handler: deleteContent,
  },
  {
    id: "getThumbnail",
    method: "get",
    path: PATHS.thumbnail,
    summary: "A small WebP of one image, also before the batch has ended",
    parameters: ["BatchId", "CustomId", "ThumbnailWidth", "ImageIndex", ...conditions],
    answers: {
      200: {
        description: "The small image.",
        bytes: ["image/webp"],
        headers: ["ContentLength", "ETag", "CacheControl", "NoSniff"],
      },
      304: unchanged,
    },
    errors: [...contentErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
    guards: usesBatches,
    handler: thumbnail,
  },
  {
    id: "listThumbnails",
    method: "get",
    path: PATHS.thumbnails,
    summary: "Small WebPs of the images of many items, those that are made already",
    parameters: ["BatchId", "ThumbnailLimit", "Cursor"],
    answers: {
      200: { description: "A page of small images.", schema: "ThumbnailList", headers: ["CacheControl"] },
    },
    errors: [
      "BATCH_IMAGE_NOT_FOUND",
      "BATCH_IMAGE_OUTPUT_DELETED",
      "BATCH_IMAGE_INVALID_QUERY",
      "BATCH_IMAGE_DOWNLOAD_LIMITED",
    ],
    guards: usesBatches,
    handler: thumbnails,
  },
  {
    id: "getReference",
    method: "get",
    path: PATHS.reference,
    summary: "A reference image of an item, as it was sent",
    parameters: ["BatchId", "CustomId", "ReferenceIndex", ...ranges],
    answers: downloadAnswers("The image.", images),
    errors: [
      "BATCH_IMAGE_NOT_FOUND",
      "BATCH_IMAGE_ITEM_NOT_FOUND",
      "BATCH_IMAGE_OUTPUT_DELETED",
      "BATCH_IMAGE_RESULT_MISSING",
      "BATCH_IMAGE_DOWNLOAD_LIMITED",
    ],
    guards: usesBatches,
    handler: reference,
  },
];
