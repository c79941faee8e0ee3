// The kernel's own lines, the step of now lit, and the story's words for it.

import { element, panel, say } from "../patch_canvas/dom.js";

export function codeView(player) {
  const lines = element("code");
  const box = element("pre", "code-box", [lines], { tabindex: "0", role: "region" });
  const story = element("p", "story");
  const view = panel("code", box, story);
  let shown = "";
  let lit = null;

  /** The code of all steps that this tile passes, in the order of the story. */
  function list(titles) {
    if (shown === titles.join("|")) return;
    shown = titles.join("|");
    const steps = titles.map((title) => player.data.header.story.find((one) => one.title === title));
    lines.replaceChildren(...steps.filter(Boolean).map((step) => {
      const block = element("span", "block", [line(step.first_line - 1, `# step: ${step.title}`, true)]);
      block.dataset.title = step.title;
      step.lines.forEach((text, at) => block.append(line(step.first_line + at, text, false)));
      return block;
    }));
  }

  function light() {
    const block = [...lines.children].find((one) => one.dataset.title === player.title);
    for (const one of lines.children) one.classList.toggle("lit", one === block);
    const step = player.data.header.story.find((one) => one.title === player.title);
    const { implementation } = player.data.walk;
    say(view.title, player.words.code_of[implementation] ?? player.words.code);
    say(view.hint, step ? step.file : "");
    say(story, step ? firstSentences(step.text) : "");
    box.setAttribute("aria-label", player.words.code_label);
    if (block && block !== lit) box.scrollTop = block.offsetTop - 6; // the box is its offset parent
    lit = block;
  }

  return {
    root: view.root,
    tween() {},
    light,
    drawStep() {
      list(player.titles);
      light();
    },
  };
}

function line(number, text, isAnchor) {
  const node = element("span", isAnchor ? "line anchor" : "line", [
    element("i", "", [], { "data-number": number, "aria-hidden": "true" }),
    `${text}\n`,
  ]);
  return node;
}

/** The first two sentences; the whole story stands on the page. */
function firstSentences(text) {
  return text.split(/(?<=\.)\s+(?=[A-Z])/).slice(0, 2).join(" ");
}
