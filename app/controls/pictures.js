// Thumbnails to choose from. A picture that is pasted, or dropped anywhere on the page, goes into
// the upload field beside them, so that there is one way in with one set of checks.

const mounted = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  let strip = mounted.get(parentElement);
  if (!strip) {
    strip = document.createElement("div");
    strip.className = "strip";
    strip.setAttribute("role", "group");
    parentElement.append(strip);
    mounted.set(parentElement, strip);
  }
  strip.setAttribute("aria-label", data.label);
  strip.replaceChildren(...data.items.map((item) => thumbnail(item, data.chosen, setTriggerValue)));

  document.onpaste = (event) => forward(event, event.clipboardData, data.uploader);
  document.ondragover = (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  };
  document.ondrop = (event) => {
    // The upload field takes what is dropped on itself.
    if (!event.target.closest?.(data.uploader)) forward(event, event.dataTransfer, data.uploader);
  };
  return () => {
    document.onpaste = document.ondragover = document.ondrop = null;
  };
}

function thumbnail(item, chosen, setTriggerValue) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.picture = item.name;
  button.setAttribute("aria-pressed", String(item.name === chosen));
  button.onclick = () => setTriggerValue("picked", item.name);
  const image = document.createElement("img");
  image.src = item.source;
  image.alt = item.alt;
  const title = document.createElement("span");
  title.textContent = item.title;
  button.append(image, title);
  return button;
}

function forward(event, transfer, uploader) {
  const file = [...(transfer?.files ?? [])][0];
  const input = document.querySelector(`${uploader} input[type="file"]`);
  if (!file || !input) return;
  event.preventDefault();
  const one = new DataTransfer();
  one.items.add(file);
  input.files = one.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}
