import sharpLibrary from "sharp";

// Every picture passes through once, so a cache of operations only costs memory; and one libvips thread per
// picture beats several, because whole pictures already run side by side on the thread pool.
sharpLibrary.cache(false);
sharpLibrary.concurrency(1);

// Images of others are measured before they are decoded, and the measures are those of these decoders. There are more, also
// for the same files: that of JPEGs with a gain map holds the whole picture. SVG is what this program draws.
sharpLibrary.block({ operation: ["VipsForeignLoad"] });
sharpLibrary.unblock({
  operation: ["Jpeg", "Png", "Webp", "Svg"].map((format) => `VipsForeignLoad${format}`),
});

/** The image library with this program's settings. Nothing else imports `sharp` itself. */
export const sharp = sharpLibrary;
