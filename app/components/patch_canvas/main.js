// Patch canvas: holds the state, takes in answers from Python, redraws once an animation frame.

import { colourTable, maxima, paintAtlas, scaleTop } from "./colours.js";
import { unpack } from "./blob.js";
import { element, say } from "./dom.js";
import { headsView } from "./heads.js";
import { largeView } from "./large.js";
import { overviewView } from "./overview.js";
import { loadPicture } from "./photo.js";
import { pictureView } from "./picture.js";
import { makeSender } from "./sender.js";
import { sameQuery } from "./geometry.js";
import { fill, queryName } from "./words.js";

const SLOW_MS = 300; // waiting shorter than this is not mentioned
const TWO_COLUMNS = 760; // CSS pixels, as in style.css

const instances = new WeakMap();

/** Which maps a selection needs from Python; all else is drawn from what is here. */
function mapsKey({ query, direction, pin }) {
  return JSON.stringify([query, direction, pin]);
}

class PatchCanvas {
  constructor(parent, words, setStateValue) {
    this.words = words;
    this.state = { selection: null, data: null, hover: null, bitmap: null, atlas: null, largest: null };
    this.seq = 0;
    this.changedAt = null;
    this.frame = null;
    this.painted = "";
    this.atlases = { query: element("canvas"), pin: element("canvas") };
    this.sender = makeSender(setStateValue);
    this.hover = this.hover.bind(this);
    this.views = [pictureView, headsView, overviewView, largeView].map((make) => make(this));
    this.updating = element("div", "updating", [element("span")], { role: "status" });
    this.root = element("div", "patch-canvas", [
      this.updating,
      element("div", "panels", this.views.map((view) => view.root)),
    ]);
    parent.append(this.root);
    this.observer = new ResizeObserver(() => this.invalidate());
    this.observer.observe(this.root);
  }

  /** A change by the visitor. Shown at once; `send` false keeps a dragged slider to itself. */
  change(part, send = true) {
    const before = mapsKey(this.state.selection);
    this.state.selection = { ...this.state.selection, ...part };
    this.seq += 1;
    if (mapsKey(this.state.selection) !== before) this.changedAt = performance.now();
    if (send) this.sender.send({ ...this.state.selection, seq: this.seq });
    this.invalidate();
  }

  hover(query) {
    if (sameQuery(query, this.state.hover)) return;
    this.state.hover = query;
    this.invalidate();
  }

  /** An answer from Python. One that is older than the visitor's last change moves nothing back. */
  accept(bytes) {
    const data = unpack(bytes);
    const { header } = data;
    const isNewest = header.seq >= this.seq || this.state.data === null;
    if (isNewest) {
      this.seq = header.seq;
      this.state.selection = header.selection;
    } else if (mapsKey(header.selection) !== mapsKey(this.state.selection)) {
      return;
    }
    const digest = header.picture;
    if (this.state.data?.header.picture !== digest) this.state.hover = null;
    this.state.data = data;
    this.largest = { query: maxima(data.maps, header), pin: data.pinned && maxima(data.pinned, header) };
    this.table = colourTable(header.colours);
    this.painted = "";
    this.words = Object.assign(this.words, header.words);
    loadPicture(
      digest,
      data.picture,
      (bitmap) => {
        if (this.state.data.header.picture !== digest) return;
        this.state.bitmap = bitmap;
        this.root.dataset.picture = digest;
        this.invalidate();
      },
      () => (this.root.dataset.picture = "unreadable"),
    );
    this.invalidate();
  }

  invalidate() {
    if (this.frame === null && this.state.data) this.frame = requestAnimationFrame(() => this.draw());
  }

  /** Colours both sets of maps again if the maps, the scale or the pin changed. */
  paint() {
    const { selection, data } = this.state;
    const comparing = selection.pin !== null && data.pinned !== null;
    const wanted = `${selection.scale} ${comparing}`;
    if (this.painted === wanted) return;
    const sets = comparing ? [this.largest.query, this.largest.pin] : [this.largest.query];
    const top = (layer, head) => scaleTop(selection.scale, sets, layer, head);
    const paintSet = (name, maps) =>
      paintAtlas(this.atlases[name], maps, this.largest[name], data.header, this.table, selection.scale, top);
    paintSet("query", data.maps);
    if (comparing) paintSet("pin", data.pinned);
    this.state.largest = { ...this.largest, all: sets };
    this.state.atlas = this.atlases;
    this.painted = wanted;
  }

  draw() {
    this.frame = null;
    this.paint();
    for (const view of this.views) view.draw(this.state);
    this.mark();
  }

  /** Says on the root element what is drawn, and shows if an answer is overdue. */
  mark() {
    const { selection, data } = this.state;
    const { header } = data;
    const arrived = mapsKey(selection) === mapsKey(header.selection);
    Object.assign(this.root.dataset, {
      query: String(header.selection.query),
      direction: header.selection.direction,
      layer: selection.layer,
      head: selection.head,
      scale: selection.scale,
      drawnSeq: header.seq,
      waiting: !arrived,
    });
    if (arrived && this.changedAt !== null) {
      this.root.dataset.redrawMs = (performance.now() - this.changedAt).toFixed(1);
      this.changedAt = null;
    }
    say(this.updating.firstChild, fill(this.words.updating, { query: queryName(this.words, selection.query) }));
    clearTimeout(this.slow);
    if (arrived) {
      this.updating.classList.remove("shown");
    } else {
      const left = Math.max(0, SLOW_MS - (performance.now() - this.changedAt));
      this.slow = setTimeout(() => this.updating.classList.add("shown"), left);
    }
  }

  /** CSS pixels that the overview may take. */
  overviewWidth() {
    const width = this.root.clientWidth;
    return width < TWO_COLUMNS ? width : 0.34 * width;
  }

  stop() {
    this.observer.disconnect();
    this.sender.stop();
    clearTimeout(this.slow);
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.root.remove();
  }
}

/** Called by Streamlit for every new answer and every change of theme. */
export default function (component) {
  const { parentElement, data, setStateValue } = component;
  let canvas = instances.get(parentElement);
  if (!canvas) {
    canvas = new PatchCanvas(parentElement, unpack(data).header.words, setStateValue);
    instances.set(parentElement, canvas);
  }
  canvas.sender.use(setStateValue);
  canvas.accept(data);
  return () => {
    instances.delete(parentElement);
    canvas.stop();
  };
}
