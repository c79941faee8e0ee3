// First, back, play, forward, last, scrub and speed; the sentence of the step stands above them.

import { button, element, say } from "../patch_canvas/dom.js";
import { fill } from "../patch_canvas/words.js";
import { sentence } from "./values.js";

const SHAPES = {
  first: "M4 3h2v14H4zM17 3v14L7 10z",
  back: "M14 3v14L4 10zM15 3h2v14h-2z",
  play: "M5 3l12 7-12 7z",
  pause: "M5 3h4v14H5zM11 3h4v14h-4z",
  forward: "M6 3l10 7-10 7zM3 3h2v14H3z",
  last: "M14 3h2v14h-2zM3 3l10 7-10 7z",
};
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

export function controlsView(player) {
  const text = element("p", "sentence");
  const spoken = element("p", "spoken", [], { "aria-live": "polite", role: "status" });
  const acts = {
    first: () => player.go(0), back: () => player.go(player.step - 1), play: () => player.toggle(),
    forward: () => player.go(player.step + 1), last: () => player.go(player.data.walk.last),
  };
  const buttons = Object.fromEntries(Object.entries(acts).map(([name, act]) => {
    const node = button(`act ${name}`, act, [icon(SHAPES[name])]);
    return [name, node];
  }));
  const scrub = element("input", "scrub", [], { type: "range", min: 0, step: 1 });
  scrub.addEventListener("input", () => player.go(Number(scrub.value)));
  const count = element("span", "count");
  const speed = element("select", "", SPEEDS.map((value) => element("option", "", [`${value}×`], { value })));
  speed.value = "1";
  speed.addEventListener("change", () => player.setSpeed(Number(speed.value)));
  const speedLabel = element("label", "speed", [element("span"), speed]);
  const row = element("div", "acts", [...Object.values(buttons), scrub, count, speedLabel]);
  const root = element("div", "controls", [text, spoken, row]);

  return {
    root,
    tween() {},
    drawStep() {
      const { words, step } = player;
      const { walk } = player.data;
      const line = sentence(player);
      const place = { step: step + 1, steps: walk.steps.length };
      say(text, line);
      if (!player.playing) say(spoken, `${fill(words.step, place)}. ${line}`);
      say(count, fill(words.step, place));
      scrub.max = String(walk.last);
      scrub.value = String(step);
      scrub.setAttribute("aria-label", words.scrub);
      scrub.setAttribute("aria-valuetext", fill(words.step, place));
      say(speedLabel.firstChild, words.speed);
      for (const [name, node] of Object.entries(buttons)) {
        const label = name === "play" && player.playing ? words.acts.pause : words.acts[name];
        node.setAttribute("aria-label", label);
        node.title = label;
      }
      buttons.play.firstChild.firstChild.setAttribute("d", player.playing ? SHAPES.pause : SHAPES.play);
      setDisabled(buttons.first, step === 0);
      setDisabled(buttons.back, step === 0);
      setDisabled(buttons.forward, step === walk.last);
      setDisabled(buttons.last, step === walk.last);
    },
  };
}

/** A button that is out of use keeps the focus, so that the keyboard goes on working. */
function setDisabled(node, off) {
  node.setAttribute("aria-disabled", String(off));
}

function icon(shape) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", shape);
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  svg.append(path);
  return svg;
}
