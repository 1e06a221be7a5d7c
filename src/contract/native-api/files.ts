import { z } from "zod";

/** The client's description of a file when it begins an upload. Null stands for an absent field; unknown fields are ignored. */
export const startUploadSchema = z.object({
  file: z
    .object({
      name: z.string().nullish().describe("`files/` and an id of your own; absent: the service makes one"),
      displayName: z.string().nullish(),
      mimeType: z
        .string()
        .nullish()
        .describe("absent: that of the header `X-Goog-Upload-Header-Content-Type`"),
      sizeBytes: z.union([z.string(), z.number()]).nullish().describe("ignored"),
    })
    .nullish(),
});
export type StartUpload = z.infer<typeof startUploadSchema>;

/** A file of the vendor's API. Responses of other services pass too, so each field but the name may be missing. */
export const nativeFileSchema = z.looseObject({
  /** `files/` and the id. */
  name: z.string(),
  displayName: z.string().optional(),
  mimeType: z.string().optional(),
  sizeBytes: z.string().optional().describe("a whole number"),
  /** RFC 3339. */
  createTime: z.string().optional(),
  updateTime: z.string().optional(),
  expirationTime: z.string().optional(),
  sha256Hash: z.string().optional().describe("Base64 of the hexadecimal digits"),
  uri: z.string().optional().describe("goes into `fileData.fileUri` of a request"),
  state: z.string().optional(),
  source: z.string().optional(),
});
export type NativeFile = z.infer<typeof nativeFileSchema>;

/** The end of an upload. */
export const uploadedFileSchema = z.looseObject({ file: nativeFileSchema.optional() });
export type UploadedFile = z.infer<typeof uploadedFileSchema>;

/** `nextPageToken` goes into `pageToken` of the next request; absent on the last page. */
export const nativeFileListSchema = z.looseObject({
  files: z.array(nativeFileSchema).optional(),
  nextPageToken: z.string().optional(),
});
export type NativeFileList = z.infer<typeof nativeFileListSchema>;
