// Entry of the tile player. In Streamlit the default export is called. A page that plays offline puts
// `modules()` and `style()` of door.py into one <script type="module"> and one <style>, and ends the
// script with `mount(document.getElementById("player"), bytes)`: bytes is a Uint8Array of `pack(data)`.
// Words, colours and picture are in those bytes; --st-text-color, --st-background-color,
// --st-primary-color and --st-font, set on any element around it, choose the theme.

import { TilePlayer } from "./player.js";

const players = new WeakMap();

/** Draws the player into an element; `onPlace({step, row, walk, seq})` hears where the visitor stopped. */
export function mount(parent, bytes, onPlace = () => {}) {
  let player = players.get(parent);
  if (!player) {
    player = new TilePlayer(parent, onPlace);
    players.set(parent, player);
  }
  player.onPlace = onPlace;
  player.accept(bytes);
  return player;
}

/** Called by Streamlit for every new answer and every change of theme. */
export default function (component) {
  const { parentElement, data, setStateValue } = component;
  const player = mount(parentElement, data, (place) => setStateValue("place", place));
  return () => {
    players.delete(parentElement);
    player.stop();
  };
}
