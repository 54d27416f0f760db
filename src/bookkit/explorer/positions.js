// Clocks, waves and the vector itself, for one position and another.
const name = "positions";
const draw = ({ d_model, position, offset }, put, width) => {
  const pairs = d_model / 2;
  const rate = (i) => 10000 ** ((-2 * i) / d_model);
  const count = Math.min(pairs, 8);
  const shown = [...Array(count).keys()].map((j) =>
    Math.round((j * (pairs - 1)) / (count - 1)),
  );
  const places = [
    ["here", position],
    ["there", position + offset],
  ];
  const write = (x, y, text, more) => put("text", { x, y, ...more }, text);
  const middle = { "text-anchor": "middle" };
  const left = 56;
  const room = width - left - 4;
  let y = 14;

  write(0, y, "Each pair of columns as a clock hand. Below: the columns,");
  write(0, (y += 16), "and the wavelength, which is the positions for one turn.");
  y += 12;
  const across = Math.min(count, width < 520 ? 4 : 8);
  const step = width / across;
  const r = Math.min(step * 0.38, 44);
  shown.forEach((i, j) => {
    const cx = ((j % across) + 0.5) * step;
    const cy = y + Math.floor(j / across) * (2 * r + 48) + r;
    put("circle", { cx, cy, r, class: "face" });
    put("line", { x1: cx, y1: cy - r, x2: cx, y2: cy - r + 5, class: "face" });
    for (const [kind, p] of [...places].reverse()) {
      const angle = p * rate(i);
      const x2 = cx + r * 0.9 * Math.sin(angle);
      const y2 = cy - r * 0.9 * Math.cos(angle);
      const dash = kind === "there" ? " dashed" : "";
      put("line", { x1: cx, y1: cy, x2, y2, class: kind + dash });
      dot(kind, x2, y2);
    }
    const wave = (2 * Math.PI) / rate(i);
    write(cx, cy + r + 16, `${2 * i}, ${2 * i + 1}`, middle);
    write(cx, cy + r + 31, wave.toFixed(wave < 100 ? 1 : 0), middle);
  });
  y += Math.ceil(count / across) * (2 * r + 48) + 14;

  write(0, y, "Sine (solid) and cosine (dashed), positions 0 to 150");
  y += 8;
  const last = Math.min(count, 4) - 1;
  for (let row = 0; row <= last; row++) {
    const i = shown[Math.round((row * (count - 1)) / last)];
    const at = (p, f) => [left + (p / 150) * room, y + 20 - 16 * f(p * rate(i))];
    put("line", { x1: left, x2: left + room, y1: y + 20, y2: y + 20, class: "face" });
    write(0, y + 24, `${2 * i}, ${2 * i + 1}`);
    for (const [f, dash] of [[Math.sin, ""], [Math.cos, " dashed"]]) {
      const points = [...Array(601).keys()].map((n) =>
        at(n / 4, f).map((z) => z.toFixed(1)).join(),
      );
      put("polyline", { points: points.join(" "), class: "wave" + dash });
      for (const [kind, p] of places) dot(kind, ...at(p, f));
    }
    y += 44;
  }
  y += 18;

  write(0, y, "All columns, from −1 (blank) to 1 (full)");
  y += 6;
  for (const [kind, p] of places) {
    for (let c = 0; c < d_model; c++) {
      const value = (c % 2 ? Math.cos : Math.sin)(p * rate(c >> 1));
      const cell = room / d_model;
      put("rect", {
        x: left + c * cell, y, width: cell, height: 18,
        class: "cell", "fill-opacity": ((value + 1) / 2).toFixed(3),
        "data-value": value,
      });
    }
    put("rect", { x: left, y, width: room, height: 18, class: "face" });
    write(0, y + 13, p, { class: kind });
    y += 24;
  }

  function dot(kind, x, y) {
    if (kind === "here") put("circle", { cx: x, cy: y, r: 3.2, class: kind });
    else put("rect", { x: x - 3, y: y - 3, width: 6, height: 6, class: kind });
  }
  let product = 0;
  for (let i = 0; i < pairs; i++) product += Math.cos(offset * rate(i));
  const says =
    `Position ${position} (solid, round) and position ${position + offset}` +
    ` (dashed, square) at d_model ${d_model}. From one to the other the first` +
    ` hand turns by ${offset.toFixed(2)} radians, the last by` +
    ` ${(offset * rate(pairs - 1)).toPrecision(3)}. The dot product of the two` +
    ` vectors is ${product.toFixed(2)}. None of these numbers depends on the` +
    ` position.`;
  return { height: y, says };
};
