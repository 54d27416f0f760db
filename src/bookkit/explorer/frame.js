// What every explorer does: it finds its own boxes, several on a page,
// and draws again when a slider moves or the width changes. Before it
// stand `name` and `draw(values, put, width)`, which returns the
// drawing's height and a sentence. Nothing is left behind in `window`.
const box = `.explorer[data-explorer="${name}"]:not([data-live])`;
for (const root of document.querySelectorAll(box)) {
  root.dataset.live = "";
  const find = (part) => root.querySelector(`.explorer-${part}`);
  const svg = root.querySelector("svg");
  const sliders = [...root.querySelectorAll("input")];
  const put = (tag, attributes, text = "") => {
    const made = document.createElementNS(svg.namespaceURI, tag);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    made.textContent = text;
    svg.append(made);
  };
  let width = 0;
  const show = () => {
    const values = {};
    for (const slider of sliders) {
      values[slider.name] = Number(slider.value);
      slider.nextElementSibling.textContent = slider.value;
    }
    width = find("live").clientWidth;
    const wide = Math.max(width || 640, 260);
    svg.replaceChildren();
    const { height, says } = draw(values, put, wide);
    svg.setAttribute("viewBox", `0 0 ${wide} ${height}`);
    svg.setAttribute("aria-label", says);
    find("said").textContent = says;
  };
  find("hint").remove();
  find("live").hidden = false;
  root.querySelector("details").open = false;
  for (const slider of sliders) slider.addEventListener("input", show);
  show();
  new ResizeObserver(() => {
    if (find("live").clientWidth !== width) show();
  }).observe(root);
}
