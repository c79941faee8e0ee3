// Small helpers for elements. Text goes in by textContent only.

/** What an arrow key adds to [row, column]. */
export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** A new element with a class, children and attributes. */
export function element(tag, className = "", children = [], attributes = {}) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Sets text only where it differs, so that screen readers and layout are left in peace. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function button(className, onClick, children = []) {
  const node = element("button", className, children, { type: "button" });
  node.addEventListener("click", onClick);
  return node;
}

/** A row of buttons of which one is pressed. options: [{value, text, hint}] */
export function segmented(label, options, onChoose) {
  const buttons = options.map(({ value, text, hint }) => {
    const node = button("segment", () => onChoose(value));
    node.textContent = text;
    if (hint) node.title = hint;
    node.dataset.value = value;
    return node;
  });
  const root = element("div", "segmented", buttons, { role: "group", "aria-label": label });
  const press = (chosen) => {
    for (const node of buttons) {
      node.setAttribute("aria-pressed", String(node.dataset.value === chosen));
    }
  };
  return { root, press };
}

/** A panel with a title, a quieter line beside it, and a body. */
export function panel(name, ...body) {
  const title = element("h3");
  const hint = element("span", "hint");
  const root = element("section", `panel ${name}`, [element("header", "", [title, hint]), ...body]);
  return { root, title, hint };
}
