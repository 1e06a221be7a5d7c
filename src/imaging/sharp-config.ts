import sharpLibrary from "sharp";

// Every picture passes through once, so a cache of operations only costs memory; and one libvips thread per
// picture beats several, because whole pictures already run side by side on the thread pool.
sharpLibrary.cache(false);
sharpLibrary.concurrency(1);

/** The image library with this program's settings. Nothing else imports `sharp` itself. */
export const sharp = sharpLibrary;
