import { expect, it } from "vitest";
import {
  bucketUrl,
  encodePath,
  readErrorCode,
  readPage,
} from "../../../../src/storage/blobs/s3/s3-connection.ts";

it("[S3-1] a bucket of Amazon's is a host, and one with dots or of another server is a path", () => {
  const region = "eu-central-1";
  expect(bucketUrl({ bucket: "pictures", region })).toBe("https://pictures.s3.eu-central-1.amazonaws.com/");
  expect(bucketUrl({ bucket: "my.pictures", region })).toBe(
    "https://s3.eu-central-1.amazonaws.com/my.pictures/",
  );
  const endpoint = "http://127.0.0.1:9000/";
  expect(bucketUrl({ bucket: "pictures", region, endpoint })).toBe("http://127.0.0.1:9000/pictures/");
});

it("[S3-1] names are encoded as signatures need them", () => {
  expect(encodePath("team a/b+c/(1)*'!~-._ä")).toBe("team%20a/b%2Bc/%281%29%2A%27%21~-._%C3%A4");
});

const entry = (key: string, size = "3") =>
  `<Contents><Key>${key}</Key><LastModified>2030-01-02T03:04:05.000Z</LastModified><Size>${size}</Size><Owner><ID>Key</ID></Owner></Contents>`;
const page = (inner: string) =>
  `<?xml version="1.0"?>\n<ListBucketResult xmlns="x">${inner}</ListBucketResult>\n`;

it("[S3-1] a page of a list is read with and without encoded names", () => {
  const names = entry("a&amp;b&#228;&#x1F98A;&unknown;%41");
  expect(readPage(page(names))).toEqual({
    objects: [{ key: "a&bä🦊&unknown;%41", sizeBytes: 3, changedAtMs: Date.UTC(2030, 0, 2, 3, 4, 5) }],
    next: null,
  });
  const more = "<IsTruncated>true</IsTruncated><NextContinuationToken>1/&amp;</NextContinuationToken>";
  const encoded = readPage(page(`<EncodingType>url</EncodingType>${more}${entry("a+b%2Bc/%C3%A4")}`));
  expect(encoded).toMatchObject({ objects: [{ key: "a b+c/ä" }], next: "1/&" });
  expect(readPage(page(""))).toEqual({ objects: [], next: null });
});

it.each([
  ["a page of something else", "<html>sign in</html>"],
  ["half a list", page(entry("a")).slice(0, -20)],
  ["an entry without a size", page(entry("a", "many"))],
  ["more without a token", page("<IsTruncated>true</IsTruncated>")],
])("[S3-2] %s is no list", (_name, text) => {
  expect(() => readPage(text)).toThrow("cannot be read");
});

it("[S3-3] the code of an error is a plain word, or nothing", () => {
  expect(readErrorCode("<Error><Code>SlowDown</Code><Message>x</Message></Error>")).toBe("SlowDown");
  expect(readErrorCode("<Error><Code>a b\nc</Code></Error>")).toBeNull();
  expect(readErrorCode("<html>502</html>")).toBeNull();
});
