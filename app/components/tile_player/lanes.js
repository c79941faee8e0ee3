// HBM, L2 and SRAM: what lies where at this step, bytes moved so far, and how full the chip is.

import { element, panel, say } from "../patch_canvas/dom.js";
import { fill } from "../patch_canvas/words.js";
import { byteText, itemSize } from "./numbers.js";

// What each kernel keeps where. HBM: name -> [axis, what happens at this step]; the part that is used is
// lit along the axis. SRAM: name -> "held" from the start, "new" at this step, or "made" here and nowhere else.
const PLACES = {
  fa2: {
    hbm: { q: ["query", "held"], k: ["key", "read"], v: ["key", "read"], o: ["query", "end"] },
    sram: { q: "held", k: "new", v: "new", s: "made", ml: "held", o: "held" },
  },
  fa1: {
    hbm: {
      q: ["query", "read"], k: ["key", "read"], v: ["key", "read"],
      o: ["query", "both"], ml: ["query", "both"],
    },
    sram: { k: "new", v: "new", q: "new", o: "new", ml: "new", s: "made" },
  },
  get fa3() {
    return this.fa2;
  },
  "fa2-backward": {
    hbm: {
      q: ["query", "held"], do: ["query", "held"], k: ["key", "read"], v: ["key", "read"],
      lse: ["query", "held"], dq: ["query", "end"],
    },
    sram: { q: "held", do: "held", lse: "held", k: "new", v: "new", p: "made", ds: "made", dq: "held" },
  },
  pairs: {
    hbm: { q: ["query", "read"], k: ["key", "read"], s: ["square", "write"] },
    sram: { q: "new", k: "new", s: "made" },
  },
  softmax: { hbm: { s: ["square", "read"], p: ["square", "write"] }, sram: { s: "new", p: "made" } },
  sums: {
    hbm: { p: ["square", "read"], v: ["key", "read"], o: ["query", "end"] },
    sram: { p: "new", v: "new", o: "held" },
  },
};

export function lanesView(player) {
  const lanes = Object.fromEntries(["hbm", "l2", "sram"].map((name) => [name, lane(name)]));
  const meter = element("i");
  const track = element("div", "meter", [meter], { "aria-hidden": "true" });
  lanes.sram.root.append(track);
  const moved = element("dl", "moved");
  const view = panel("lanes", element("div", "lane-row", Object.values(lanes).map((one) => one.root)), moved);

  return {
    root: view.root,
    tween() {},
    drawStep() {
      const { walk, header } = player.shown;
      const { words } = player;
      const step = walk.steps[player.step];
      const places = PLACES[step.phase || walk.implementation];
      const ends = [player.step === 0, player.step === walk.last];
      say(view.title, words.lanes);
      say(view.hint, words.lanes_hint);
      drawHbm(lanes.hbm, places.hbm, walk, step, words, ends);
      drawL2(lanes.l2, walk, step, header.on_chip, words);
      drawSram(lanes.sram, places.sram, words);
      drawMeter(lanes.sram, meter, track, header, words);
      drawMoved(moved, walk, player.step, header, words);
    },
  };
}

function lane(name) {
  const title = element("h4");
  const body = element("div", "lane-body");
  const note = element("p", "quiet");
  return { root: element("div", `lane ${name}`, [title, body, note]), title, body, note };
}

/** Makes a lane's chips once for each set of names, so that a step changes classes only. */
function chips(lane, names, make) {
  const wanted = names.join(" ");
  if (lane.body.dataset.names !== wanted) {
    lane.body.dataset.names = wanted;
    lane.body.replaceChildren(...names.map(make));
  }
  return [...lane.body.children];
}

function drawHbm(lane, matrices, walk, step, words, [isFirst, isLast]) {
  say(lane.title, words.hbm);
  say(lane.note, words.hbm_note[step.phase || walk.implementation]);
  const names = Object.keys(matrices);
  const rows = chips(lane, names, (name) => (
    element("div", "matrix", [
      element("b", "", [words.chips[name]]),
      element("div", "extent", [element("i")]),
      element("span", "deed"),
    ])
  ));
  rows.forEach((row, at) => {
    const [axis, deed] = matrices[names[at]];
    const lit = row.querySelector("i");
    const [start, count] = axis === "key" ? [step.key_start, step.keys] : [walk.query_start, walk.rows];
    const isSquare = axis === "square";
    lit.style.left = `${(100 * (isSquare ? step.key_start : start)) / walk.tokens}%`;
    lit.style.width = `${(100 * (isSquare ? step.keys : count)) / walk.tokens}%`;
    const now = deedNow(deed, isFirst, isLast);
    row.dataset.deed = now;
    say(row.querySelector(".deed"), words.deeds[now]);
  });
}

/** What is held was read at the first tile; what is written at the end waits for the last one. */
function deedNow(deed, isFirst, isLast) {
  if (deed === "end") return isLast ? "write" : "later";
  if (deed === "held") return isFirst ? "read" : "was";
  return deed;
}

function drawL2(lane, walk, step, onChip, words) {
  say(lane.title, words.l2);
  const both = 2 * walk.tokens * walk.head_dim * itemSize(walk.dtype);
  const square = walk.tokens ** 2 * itemSize(walk.dtype);
  const size = onChip.l2_bytes ? byteText(onChip.l2_bytes) : words.unknown;
  const bytes = byteText(walk.implementation === "naive" ? square : both);
  const names = walk.implementation === "naive" ? ["s"] : ["k", "v"];
  chips(lane, names, (name) => element("span", "chip held", [words.chips[name]]));
  const values = { bytes, size, gpu: onChip.gpu };
  say(lane.note, fill(words.l2_note[walk.implementation === "naive" ? "naive" : "flash"], values));
}

function drawSram(lane, tiles, words) {
  say(lane.title, words.sram);
  const names = Object.keys(tiles);
  chips(lane, names, (name) => (
    element("span", "chip", [words.tile_chips[name], element("small")])
  )).forEach((chip, at) => {
    chip.className = `chip ${tiles[names[at]]}`;
    say(chip.lastChild, words.kept[tiles[names[at]]]);
  });
}

function drawMeter(lane, meter, track, { on_chip: onChip, tags }, words) {
  const total = Object.values(onChip.parts).reduce((sum, part) => sum + part, 0);
  const share = total / onChip.limit_bytes;
  meter.style.width = `${Math.min(100, 100 * share)}%`;
  track.classList.toggle("full", share > 1);
  const values = {
    bytes: byteText(total), limit: byteText(onChip.limit_bytes), gpu: onChip.gpu,
    tag: words.tags[tags.on_chip],
  };
  say(lane.note, fill(share > 1 ? words.sram_too_much : words.sram_note, values));
}

function drawMoved(list, walk, index, { tags }, words) {
  const step = walk.steps[index];
  const before = index > 0 ? walk.steps[index - 1] : { bytes_read: 0, bytes_written: 0 };
  const tag = words.tags[tags.bytes];
  const pairs = ["read", "written"].map((name) => {
    const now = step[`bytes_${name}`];
    const total = walk.steps[walk.last][`bytes_${name}`];
    const values = {
      bytes: byteText(now), exact: now.toLocaleString("en"), tag,
      step: byteText(now - before[`bytes_${name}`]),
    };
    return [words.moved[name], fill(words.moved_value, values), total ? now / total : 0];
  });
  if (!list.children.length) {
    list.append(...pairs.map(() => (
      element("div", "moved-one", [element("dt"), element("dd"), element("div", "meter", [element("i")])])
    )));
  }
  pairs.forEach(([name, value, share], at) => {
    const [dt, dd, track] = list.children[at].children;
    say(dt, name);
    say(dd, value);
    track.firstChild.style.width = `${100 * share}%`;
  });
}
