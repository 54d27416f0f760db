// Attention over one pair of sentences: lines, as in the paper's Figures
// 3 to 5, or maps. A token that is chosen shows its own weights alone.
const name = "attention";
const sides = {
  encoder: ["source", "source"],
  decoder: ["target", "target"],
  cross: ["target", "source"],
};
const draw = ({ kind, layer, view }, put, width, { data, state, fields, again }) => {
  const [layers, heads, digits] = data[kind];
  const [queries, keys] = sides[kind].map((side) => data[side]);
  const title = fields[0].selectedOptions[0].text;
  if (state.kind !== kind) Object.assign(state, { kind, side: null, token: null });

  // A kind may have fewer layers or heads than another.
  const select = fields.find((field) => field.name === "layer");
  [...select.options].forEach((option, i) => (option.disabled = i >= layers));
  if (layer > layers) select.value = layer = layers;
  const boxes = fields.filter((field) => field.name === "head");
  boxes.forEach((field, i) => (field.disabled = i >= heads));
  const usable = boxes.slice(0, heads);
  const all = fields.find((field) => field.name === "all");
  if (all.checked !== (state.all ?? all.checked))
    usable.forEach((field, i) => (field.checked = all.checked || !i));
  state.all = all.checked = usable.every((field) => field.checked);
  const shown = usable.filter((field) => field.checked).map((field) => +field.value);

  // Each weight is two digits to base 32, in thousandths.
  const weight = (head, query, key) => {
    const row = ((layer - 1) * heads + head - 1) * queries.length + query;
    const at = 2 * (row * keys.length + key);
    return parseInt(digits.slice(at, at + 2), 32) / 1000;
  };
  const chosen = (side, token) => state.side === side && state.token === token;
  const meant = (query, key) =>
    state.side === null || chosen("query", query) || chosen("key", key);
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  // A token that occurs twice goes by its place too.
  const called = (tokens, i) =>
    tokens[i] + (tokens.indexOf(tokens[i]) < tokens.lastIndexOf(tokens[i]) ? ` (${i + 1})` : "");
  const colour = (head) => `var(--ex-head-${(head - 1) % 8})`;
  const about = (head, query, key) =>
    `head ${head}: ${called(queries, query)} → ${called(keys, key)}` +
    ` ${weight(head, query, key).toFixed(3)}`;

  // A list of tokens: one stop for the tabulator, arrows within it.
  const choose = (side, token, focus) => {
    const same = token === null || (chosen(side, token) && focus !== "move");
    Object.assign(state, same ? { side: null, token: null } : { side, token });
    state.focus = focus && [side, token ?? 0];
    again();
  };
  const list = (side, tokens, place) => {
    const label = side === "query" ? "queries" : "keys";
    const box = put("g", { role: "listbox", "aria-label": label, class: "tokens" });
    const stop = state.side === side ? state.token : 0;
    tokens.forEach((token, i) => {
      const { hit, x, y, turn, anchor, most } = place(i);
      const option = put("g", {
        role: "option", tabindex: i === stop ? 0 : -1,
        "aria-selected": chosen(side, i), "aria-label": `${side} ${i + 1}, ${token}`,
      }, "", box);
      put("rect", { ...hit, class: "hit" }, "", option);
      put("text", {
        x, y, "text-anchor": anchor,
        ...(turn ? { transform: `rotate(-90 ${x} ${y})` } : {}),
      }, cut(token, most), option);
      option.addEventListener("click", () => choose(side, i, "click"));
      option.addEventListener("keydown", (event) => {
        const { key } = event;
        const end = tokens.length - 1;
        const to = {
          ArrowDown: i + 1, ArrowRight: i + 1, ArrowUp: i - 1, ArrowLeft: i - 1,
          Home: 0, End: end,
        }[key];
        if (key === "Escape") choose(side, null, "click");
        else if (key === "Enter" || key === " ") choose(side, i, "click");
        else if (to === undefined) return;
        else choose(side, Math.min(Math.max(to, 0), end), "move");
        event.preventDefault();
      });
      if (state.focus && state.focus[0] === side && state.focus[1] === i)
        state.focus = option;
    });
  };
  const longest = (tokens, most) =>
    7.6 * Math.min(Math.max(...tokens.map((token) => token.length)), most) + 18;
  const write = (x, y, text, more) => put("text", { x, y, class: "name", ...more }, text);
  const says = [];
  let size;

  if (view === "lines") {
    const row = 24;
    const top = 22;
    const most = Math.max(Math.floor((width * 0.36) / 7.6), 6);
    const left = longest(queries, most);
    const squares = state.side === "query" ? shown.length * 9 + 4 : 0;
    const span = Math.min(width, 620);
    const right = span - longest(keys, most) - squares;
    const edge = right + squares + 8;
    const y = (i) => top + (i + 0.5) * row;
    write(left - 8, 14, "query", { "text-anchor": "end" });
    write(edge, 14, "key");
    const drawing = put("g", { "aria-hidden": true });
    shown.forEach((head, place) => {
      const shift = (place - (shown.length - 1) / 2) * Math.min(3, 14 / shown.length);
      for (let q = 0; q < queries.length; q++)
        for (let k = 0; k < keys.length; k++) {
          const value = weight(head, q, k);
          if (!meant(q, k)) continue;
          if (value >= 0.01) {
            const line = put("line", {
              x1: left, y1: y(q) + shift, x2: right - 2, y2: y(k) + shift,
              stroke: colour(head), "stroke-opacity": value,
              class: head > 8 ? "weight dashed" : "weight",
              "data-head": head, "data-query": q, "data-key": k, "data-value": value,
            }, "", drawing);
            put("title", {}, about(head, q, k), line);
          }
          // As in the paper: the heads as squares beside the key.
          if (squares)
            put("rect", {
              x: right + 2 + place * 9, y: y(k) - 5, width: 8, height: 10,
              fill: colour(head), "fill-opacity": value, stroke: colour(head),
              class: "square", "data-value": value,
            }, "", drawing);
        }
    });
    list("query", queries, (i) => ({
      hit: { x: 0, y: y(i) - row / 2, width: left - 3, height: row },
      x: left - 8, y: y(i) + 4.5, anchor: "end", most,
    }));
    list("key", keys, (i) => ({
      hit: { x: edge - 5, y: y(i) - row / 2, width: span - edge + 5, height: row },
      x: edge, y: y(i) + 4.5, anchor: "start", most,
    }));
    size = { height: top + row * Math.max(queries.length, keys.length) + 4 };
  } else {
    const left = longest(queries, 14);
    const above = longest(keys, 14);
    const fit = (width - left - 2) / keys.length;
    const cell = Math.max(Math.min(fit, 34, 240 / keys.length), 24);
    const [wide, high] = [keys.length * cell, queries.length * cell];
    const across = Math.max(Math.floor((width - left + 14) / (wide + 14)), 1);
    const corner = (place) => [
      left + (place % across) * (wide + 14),
      above + 22 + Math.floor(place / across) * (high + 26),
    ];
    const drawing = put("g", { "aria-hidden": true });
    shown.forEach((head, place) => {
      const [x, y] = corner(place);
      put("text", { x, y: y - 6, fill: colour(head), class: "head" }, `head ${head}`, drawing);
      for (let q = 0; q < queries.length; q++)
        for (let k = 0; k < keys.length; k++) {
          const value = weight(head, q, k);
          const made = put("rect", {
            x: x + k * cell, y: y + q * cell, width: cell, height: cell,
            fill: colour(head), "fill-opacity": value, class: "weight",
            "data-head": head, "data-query": q, "data-key": k, "data-value": value,
          }, "", drawing);
          put("title", {}, about(head, q, k), made);
          made.addEventListener("click", () => choose("query", q));
        }
      put("rect", { x, y, width: wide, height: high, class: "face" }, "", drawing);
      if (state.side) {
        const [along, i] = [state.side === "query", state.token];
        put("rect", {
          x: along ? x : x + i * cell, y: along ? y + i * cell : y,
          width: along ? wide : cell, height: along ? cell : high, class: "mark",
        }, "", drawing);
      }
      if (place && place % across === 0)
        queries.forEach((token, i) =>
          put("text", { x: left - 8, y: y + (i + 0.5) * cell + 4, "text-anchor": "end" },
            cut(token, 14), drawing));
    });
    const [, y] = corner(0);
    write(left - 8, y - 6, "query", { "text-anchor": "end" });
    write(left - 8, above - 4, "key →", { "text-anchor": "end" });
    list("query", queries, (i) => ({
      hit: { x: 0, y: y + i * cell, width: left - 2, height: cell },
      x: left - 8, y: y + (i + 0.5) * cell + 4, anchor: "end", most: 14,
    }));
    list("key", keys, (i) => ({
      hit: { x: left + i * cell, y: 0, width: cell, height: above },
      x: left + (i + 0.5) * cell + 4, y: above - 4, anchor: "start", most: 14, turn: true,
    }));
    const rows = Math.max(Math.ceil(shown.length / across), 1);
    size = { height: above + 22 + rows * (high + 26), width: left + wide + 2 };
  }

  if (!shown.length) says.push("No head is chosen.");
  else if (state.side === null)
    says.push(
      "The stronger the colour, the larger the weight, from 0 to 1.",
      "Choose a token to see its weights alone.",
    );
  else {
    const query = state.side === "query";
    const [tokens, others] = query ? [queries, keys] : [keys, queries];
    const name = called(tokens, state.token);
    says.push(query ? `Query ${name}, to keys.` : `Key ${name}, from queries.`);
    const count = shown.length > 2 ? 3 : 5;
    for (const head of shown) {
      const value = (i) => (query ? weight(head, state.token, i) : weight(head, i, state.token));
      const order = [...others.keys()].sort((a, b) => value(b) - value(a) || a - b);
      const most = order.slice(0, count)
        .map((i) => `${called(others, i)} ${value(i).toFixed(3)}`);
      says.push(`Head ${head}: ${most.join(", ")}${order.length > count ? ", …" : "."}`);
    }
  }
  if (state.focus?.focus) state.focus.focus({ preventScroll: true });
  state.focus = null;
  const heading = `${title}, layer ${layer}`;
  const one = shown.length === 1;
  const which = one ? `head ${shown[0]}` : `heads ${shown.join(", ") || "none"}`;
  return {
    ...size,
    title: heading,
    says: says.join(" "),
    table: {
      caption: `${heading}: weights of ${which}`,
      header: ["query", ...keys],
      rows: shown.flatMap((head) =>
        queries.map((token, q) => [
          one ? token : `head ${head}: ${token}`,
          ...keys.map((_, k) => weight(head, q, k).toFixed(3)),
        ])),
    },
  };
};
