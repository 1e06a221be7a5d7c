import { expect, it } from "vitest";
import { bucketUrl, encodePath } from "../../../../src/storage/blobs/s3/s3-connection.ts";

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
