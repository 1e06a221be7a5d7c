import type { Motif } from "../motif.ts";
import { type CritterLook, drawCritter } from "./critter.ts";

/** Animals that sit and face the viewer. */
function sitting(words: string, colors: Motif["colors"], size: number, look: CritterLook): Motif {
  return {
    words,
    colors,
    realm: "ground",
    size,
    wide: 0.8,
    outdoors: true,
    draw: (c, coat) => drawCritter(c, coat, look),
  };
}

export const PETS = {
  cat: sitting("cat kitten kitty tabby feline", ["#e8943a", "#7d8390", "#4a4653", "#c9a06a"], 0.9, {
    ears: "pointed",
    tail: "curl",
    face: "muzzle",
    marks: "stripes",
    whiskers: true,
    eyes: "#9fd356",
    head: "wide",
  }),
  dog: sitting(
    "dog puppy hound retriever corgi poodle labrador beagle doggo",
    ["#b9773f", "#d9a866", "#8a5a3a"],
    1,
    { ears: "floppy", tail: "tuft", face: "long", collar: true },
  ),
  fox: sitting("fox vixen", ["#e2672a"], 0.95, {
    ears: "tall",
    tail: "bushy",
    face: "cheeks",
    head: "wedge",
  }),
  wolf: sitting("wolf husky coyote", ["#7f8896"], 1.05, {
    ears: "tall",
    tail: "bushy",
    face: "cheeks",
    head: "wedge",
    eyes: "#f2c94c",
  }),
  rabbit: sitting("rabbit bunny hare", ["#d8c3ac", "#b59a80", "#efe8df"], 0.75, {
    ears: "long",
    tail: "none",
    face: "muzzle",
    whiskers: true,
  }),
  bear: sitting("bear grizzly teddy teddy-bear cub", ["#8a5634"], 1.15, {
    ears: "round",
    tail: "none",
    face: "long",
  }),
  polarbear: sitting("polar-bear", ["#eef1f4"], 1.15, { ears: "round", tail: "none", face: "long" }),
  panda: sitting("panda", ["#f6f4ef"], 1.05, {
    ears: "round",
    tail: "none",
    face: "muzzle",
    marks: "patches",
  }),
  lion: sitting("lion lioness", ["#e3ad55"], 1.15, {
    ears: "round",
    tail: "tuft",
    face: "muzzle",
    mane: "#a85a24",
    whiskers: true,
  }),
  tiger: sitting("tiger", ["#ee8a2f"], 1.1, {
    ears: "round",
    tail: "curl",
    face: "muzzle",
    marks: "stripes",
    ink: "#2a2024",
    head: "wide",
    whiskers: true,
  }),
  leopard: sitting("leopard cheetah jaguar panther lynx puma", ["#e2b15c"], 1.05, {
    ears: "round",
    tail: "curl",
    face: "muzzle",
    marks: "spots",
    ink: "#3a2a22",
    whiskers: true,
  }),
  koala: sitting("koala", ["#9aa3ad"], 0.8, { ears: "fluffy", tail: "none", face: "flat" }),
  mouse: sitting("mouse rat hamster gerbil", ["#a9a4a6", "#d3b08a"], 0.62, {
    ears: "fluffy",
    tail: "thin",
    face: "muzzle",
    whiskers: true,
  }),
  pig: sitting("pig piglet boar", ["#f2a7ae"], 0.85, {
    ears: "small",
    tail: "thin",
    face: "snout",
    head: "wide",
  }),
  monkey: sitting("monkey ape gorilla chimpanzee orangutan", ["#7a4f35"], 0.95, {
    ears: "fluffy",
    tail: "curl",
    face: "flat",
  }),
  raccoon: sitting("raccoon badger", ["#8b8f97"], 0.85, {
    ears: "round",
    tail: "bushy",
    face: "muzzle",
    marks: "mask",
    ink: "#33343d",
  }),
  redpanda: sitting("red-panda", ["#b8482c"], 0.9, { ears: "pointed", tail: "bushy", face: "flat" }),
  squirrel: sitting("squirrel chipmunk", ["#b5622e"], 0.7, { ears: "pointed", tail: "up", face: "muzzle" }),
} satisfies Record<string, Motif>;
