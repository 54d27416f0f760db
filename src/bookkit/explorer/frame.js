// What every explorer does: it finds its own boxes, several on a page,
// and draws again when a control changes or the width does. Before it
// stand `name` and `draw(values, put, width, more)`, which returns the
// drawing's height and a sentence; and, where it has them, a width that
// scrolls and what the table is to hold now. Nothing is left behind in
// `window`.
const box = `.explorer[data-explorer="${name}"]:not([data-live])`;
for (const root of document.querySelectorAll(box)) {
  root.dataset.live = "";
  // Or arrow keys would move between JupyterLab's cells as well.
  root.dataset.lmSuppressShortcuts = "true";
  const find = (part) => root.querySelector(`.explorer-${part}`);
  const svg = root.querySelector("svg");
  const details = root.querySelector("details");
  const fields = [...root.querySelectorAll("input, select")];
  const put = (tag, attributes, text = "", parent = svg) => {
    const made = document.createElementNS(svg.namespaceURI, tag);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    made.textContent = text;
    return parent.appendChild(made);
  };
  const fill = ({ caption, header, rows }) => {
    details.querySelector("summary").textContent = `${caption}, as a table`;
    find("table").setAttribute("aria-label", caption);
    if (!details.open) return;
    const line = (cells, first) => {
      const tr = document.createElement("tr");
      cells.forEach((cell, i) => {
        const made = document.createElement(first || !i ? "th" : "td");
        if (first || !i) made.scope = first ? "col" : "row";
        made.textContent = cell;
        tr.append(made);
      });
      return tr;
    };
    details.querySelector("thead").replaceChildren(line(header, true));
    const body = rows.map((row) => line(row));
    details.querySelector("tbody").replaceChildren(...body);
  };
  // The explorer's data, and whatever `draw` wants to remember.
  const data = JSON.parse(root.dataset.given ?? "null");
  const more = { data, state: {}, fields, again: () => show() };
  let width = 0;
  const show = () => {
    const values = {};
    for (const field of fields) {
      const range = field.type === "range";
      values[field.name] = range ? Number(field.value) : field.value;
      if (range) field.nextElementSibling.textContent = field.value;
    }
    width = find("live").clientWidth;
    const room = Math.max(width || 640, 260);
    svg.replaceChildren();
    const drawn = draw(values, put, room, more);
    const wide = Math.max(drawn.width ?? 0, room);
    svg.setAttribute("viewBox", `0 0 ${wide} ${drawn.height}`);
    svg.style.width = wide > room ? `${wide}px` : "";
    svg.setAttribute("aria-label", drawn.title ?? drawn.says);
    find("said").textContent = drawn.says;
    if (drawn.table) fill(drawn.table);
  };
  find("hint").remove();
  find("live").hidden = false;
  details.open = false;
  root.addEventListener("input", show);
  details.addEventListener("toggle", show);
  show();
  new ResizeObserver(() => {
    if (find("live").clientWidth !== width) show();
  }).observe(root);
}
