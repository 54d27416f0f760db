// Equation 3 over 20,000 steps, with its peak, beside the base model's.
const name = "learning_rate";
const draw = ({ d_model, warmup }, put, width) => {
  const last = 20000;
  const rate = (step, d = d_model, w = warmup) =>
    d ** -0.5 * Math.min(step ** -0.5, step * w ** -1.5);
  const short = (value) => value.toExponential(2).replace("-", "−");
  const write = (x, y, text, more) => put("text", { x, y, ...more }, text);
  const peak = rate(warmup);
  const top = 1.12 * Math.max(peak, rate(4000, 512, 4000));
  const [left, right, above, high] = [58, 12, 30, 210];
  const at = (step, value) => [
    left + (step / last) * (width - left - right),
    above + high * (1 - value / top),
  ];

  write(0, 14, "Learning rate");
  // Two marks of a round size on the vertical axis, or up to five.
  const size = 10 ** Math.floor(Math.log10(top));
  const gap = [5, 2, 1, 0.5].map((k) => k * size).find((g) => top / g >= 2);
  for (let value = 0; value < top; value += gap) {
    const [, y] = at(0, value);
    put("line", { x1: left, x2: width - right, y1: y, y2: y, class: "face" });
    const text = value ? value.toExponential(1).replace("-", "−") : "0";
    write(left - 6, y + 4, text, { "text-anchor": "end" });
  }
  for (let step = 0; step <= last; step += 5000) {
    const [x] = at(step, 0);
    write(x, above + high + 18, step, { "text-anchor": step < last ? "middle" : "end" });
  }
  write(left, above + high + 36, "training step");

  const curve = (d, w, more) => {
    const steps = [...Array(401).keys()].map((n) => Math.max(1, n * 50));
    steps.push(w);
    steps.sort((a, b) => a - b);
    const points = steps.map((s) => at(s, rate(s, d, w)).map((z) => z.toFixed(1)));
    put("polyline", { points: points.join(" "), ...more });
  };
  curve(512, 4000, { class: "wave dashed" });
  curve(d_model, warmup, { class: "here", style: "fill:none;stroke-width:2.2" });
  const [x, y] = at(warmup, peak);
  put("circle", { cx: x, cy: y, r: 4, class: "here", "data-value": peak });
  const side = warmup > last / 2 ? "end" : "start";
  write(x + (side === "end" ? -8 : 8), y - 6, short(peak), {
    class: "here", "text-anchor": side,
  });

  const says =
    `At d_model ${d_model} with ${warmup} steps of warm-up (solid) the rate is` +
    ` ${short(rate(1))} in step 1, ${short(peak)} at its peak in step ${warmup}, and` +
    ` ${short(rate(100000))} in step 100000. The paper's base model (dashed) has` +
    ` d_model 512 and 4000 steps of warm-up.`;
  return { height: above + high + 44, says };
};
