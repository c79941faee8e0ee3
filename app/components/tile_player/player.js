// Holds the place in the walk, the clock and the views; redraws only what a change touches.

import { colourTable } from "../patch_canvas/colours.js";
import { element, say, segmented } from "../patch_canvas/dom.js";
import { loadPicture } from "../patch_canvas/photo.js";
import { codeView } from "./code.js";
import { controlsView } from "./controls.js";
import { formulaView } from "./formula.js";
import { lanesView } from "./lanes.js";
import { mapsView } from "./maps.js";
import { patchesView } from "./patches.js";
import { tokenText } from "./numbers.js";
import { planeView } from "./plane.js";
import { stateView } from "./state.js";
import { tileView } from "./tile.js";
import { readPlayer } from "./walk.js";

const STEP_MS = 1500; // at speed 1
const TWEEN_MS = 320;
const QUIET_MS = 400; // a place is told upwards when the visitor has stopped for so long

export class TilePlayer {
  constructor(parent, onPlace) {
    Object.assign(this, { onPlace, step: 0, row: 0, seq: 0, speed: 1, playing: false, shows: "broken" });
    Object.assign(this, { bitmap: null, data: null, title: "", layout: 0 });
    Object.assign(this, { entered: 0, frame: null, dirty: false, tweening: false });
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.plane = planeView(this);
    this.code = codeView(this);
    this.formula = formulaView(this);
    this.controls = controlsView(this);
    const makers = [patchesView, tileView, stateView, mapsView, lanesView];
    const [patches, tile, state, maps, lanes] = makers.map((make) => make(this));
    this.views = [this.plane, patches, this.formula, this.code, tile, state, maps, lanes];
    this.note = element("p", "broken-note");
    this.probe = element("span", "probe");
    const reading = element("div", "reading", [this.formula.root, this.code.root]);
    const rest = [tile, state, maps, lanes].map((view) => view.root);
    const panels = element("div", "panels", [this.plane.root, patches.root, reading, ...rest]);
    const parts = [this.probe, this.note, panels, this.controls.root];
    this.root = element("div", "tile-player", parts, { tabindex: "0", role: "group" });
    this.root.addEventListener("keydown", (event) => this.key(event));
    parent.append(this.root);
    this.observer = new ResizeObserver(() => {
      this.layout += 1;
      this.invalidate();
    });
    this.observer.observe(this.root);
  }

  get words() {
    return this.data.header.words;
  }

  /** The walk whose numbers fill the formulas and the tile. */
  get shown() {
    const { header, walk, broken } = this.data;
    return { header, walk: broken && this.shows === "broken" ? broken : walk };
  }

  get titles() {
    return this.data.walk.steps[this.step].titles;
  }

  /** The followed row's token in words. */
  get rowText() {
    return tokenText(this.words, this.data.header, this.data.walk.query_start + this.row);
  }

  /** Bytes from Python. On the same walk they move nothing that the visitor has done since. */
  accept(bytes) {
    const data = readPlayer(bytes);
    const { header } = data;
    const same = this.data?.header.walk_id === header.walk_id;
    if (!same) this.open(data);
    if (!same || header.seq >= this.seq) {
      this.pause();
      Object.assign(this, { step: header.step, row: header.row, seq: header.seq });
    }
    this.readInk();
    this.enter(false);
  }

  open(data) {
    this.data = data;
    const { header } = data;
    const { probability, signed } = header.colours;
    const stops = (colours) => colours.map((rgb) => `rgb(${rgb})`).join(",");
    this.table = colourTable(probability);
    this.signedTable = colourTable(signed);
    this.probabilityStops = stops(probability);
    this.signedStops = stops(signed);
    this.root.setAttribute("aria-label", `${header.words.player} ${header.caption}`);
    say(this.note, header.broken_note);
    this.note.hidden = !header.broken_note;
    this.offerWalks();
    const failed = () => (this.root.dataset.picture = "unreadable");
    loadPicture(header.walk_id, data.picture, (bitmap) => this.show(header, bitmap), failed);
  }

  show(header, bitmap) {
    if (this.data.header !== header) return;
    this.bitmap = bitmap;
    this.root.dataset.picture = "drawn";
    this.invalidate();
  }

  /** With a broken walk: whose numbers stand in the formulas. */
  offerWalks() {
    const { words } = this;
    this.formula.which.replaceChildren();
    if (!this.data.broken) return;
    const options = [{ value: "broken", text: words.broken }, { value: "right", text: words.right }];
    const choice = segmented(words.numbers_of, options, (value) => {
      this.shows = value;
      choice.press(value);
      this.invalidate();
    });
    choice.press(this.shows);
    this.formula.which.append(choice.root);
  }

  /** The theme's colours, for the canvases. */
  readInk() {
    const read = (name) => {
      this.probe.style.color = `var(--${name})`;
      return getComputedStyle(this.probe).color;
    };
    const names = ["text", "page", "edge", "hollow", "visited", "query", "key"];
    this.ink = Object.fromEntries(names.map((name) => [name, read(name)]));
    Object.assign(this.ink, { queryOnPhoto: "#63d2ff", keyOnPhoto: "#ffb067" });
    const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    context.fillStyle = this.ink.hollow;
    context.fillRect(0, 0, 1, 1);
    [this.ink.hollowPixel] = new Uint32Array(context.getImageData(0, 0, 1, 1).data.buffer);
  }

  // --- changes by the visitor

  go(step) {
    const wanted = Math.min(Math.max(step, 0), this.data.walk.last);
    if (wanted === this.step) return;
    this.pause();
    this.step = wanted;
    this.enter(true);
    this.tell();
  }

  follow(row) {
    const wanted = Math.min(Math.max(row, 0), this.data.walk.rows - 1);
    if (wanted === this.row) return;
    this.row = wanted;
    this.invalidate();
    this.tell();
  }

  toggle() {
    if (this.playing) {
      this.pause();
      this.tell();
    } else {
      this.playing = true;
      if (this.step === this.data.walk.last) this.step = 0;
      this.enter(true);
    }
  }

  setSpeed(speed) {
    this.speed = speed;
    this.entered = performance.now();
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.invalidate();
  }

  key(event) {
    const { target } = event;
    if (event.altKey || event.ctrlKey || event.metaKey || target.tagName === "SELECT") return;
    const ranged = target.tagName === "INPUT";
    const acts = {
      ArrowLeft: () => this.go(this.step - 1), ArrowRight: () => this.go(this.step + 1),
      Home: () => this.go(0), End: () => this.go(this.data.walk.last),
    };
    if (event.key === " " && target.tagName !== "BUTTON") this.toggle();
    else if (acts[event.key] && !ranged) acts[event.key]();
    else return;
    event.preventDefault();
  }

  /** Lights the code and formulas of one part of this step. */
  lightTitle(title) {
    this.title = title;
    this.code.light();
    this.formula.light();
    this.root.dataset.title = title;
  }

  tell() {
    this.seq += 1;
    clearTimeout(this.teller);
    this.teller = setTimeout(() => {
      if (this.playing) return;
      const { step, row, seq } = this;
      this.onPlace({ step, row, seq, walk: this.data.header.walk_id });
    }, QUIET_MS);
  }

  // --- the clock

  enter(moves) {
    this.entered = performance.now();
    this.tweening = moves && !this.still.matches;
    this.title = this.playing ? this.titles[0] : this.data.walk.steps[this.step].name;
    this.invalidate();
  }

  invalidate() {
    this.dirty = true;
    this.wake();
  }

  wake() {
    if (this.frame === null && this.data) this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.frame = null;
    const begun = performance.now();
    const age = Math.max(0, now - this.entered);
    const span = STEP_MS / this.speed;
    if (this.playing && age >= span) this.advance();
    const tweenMs = Math.min(TWEEN_MS, 0.4 * span);
    const progress = this.tweening ? Math.min(1, Math.max(0, now - this.entered) / tweenMs) : 1;
    if (this.dirty) {
      this.dirty = false;
      for (const view of [...this.views, this.controls]) view.drawStep();
      this.mark();
    }
    if (this.tweening) this.plane.tween(1 - (1 - progress) ** 3);
    if (progress === 1) this.tweening = false;
    if (this.playing) this.beat(now, span);
    this.root.dataset.drawMs = (performance.now() - begun).toFixed(2);
    if (this.playing || this.tweening) this.wake();
  }

  /** The next step of a walk that plays; the last one stops it. */
  advance() {
    if (this.step >= this.data.walk.last) {
      this.playing = false;
      this.title = this.titles.at(-1);
      this.dirty = true;
      this.tell();
      return;
    }
    this.step += 1;
    this.seq += 1;
    this.enter(true);
  }

  /** While it plays, the parts of a step are lit one after the other. */
  beat(now, span) {
    const { titles } = this;
    const share = Math.min(Math.max(0, now - this.entered) / span, 0.999);
    const title = titles[Math.floor(share * titles.length)];
    if (title !== this.title) this.lightTitle(title);
  }

  /** Says on the root element what is drawn. */
  mark() {
    const { step, row, playing, title, seq } = this;
    Object.assign(this.root.dataset, { step, row, playing, title, seq, walk: this.data.header.walk_id });
  }

  stop() {
    this.observer.disconnect();
    clearTimeout(this.teller);
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.root.remove();
  }
}
