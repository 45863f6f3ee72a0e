// The explorables of the published pages, which have no kernel: each finds its controls, colours and data as JSON in the
// page (tinyllm/explore/shell.py writes it) and is moved, drawn and put into words here. Nothing is loaded from anywhere.
// Numbers and words are those of the Python modules of the same names; tests/browser holds the two together.
"use strict";

(() => {
  // Numbers -----------------------------------------------------------------------------------------------------------

  // Python rounds an exact tie to the even digit; toFixed, otherwise exact, rounds it up.
  function fixed(x, digits) {
    const exact = Math.abs(x).toFixed(digits + 40);
    const cut = exact.length - 40;
    const up = x.toFixed(digits);
    if (!/^50*$/.test(exact.slice(cut)) || "02468".includes(up.at(-1))) return up;
    const down = exact.slice(0, cut).replace(/\.$/, "");
    return x < 0 ? `-${down}` : down;
  }

  const two = (x) => fixed(x, 2);
  const total = (numbers) => numbers.reduce((sum, x) => sum + x, 0); // from left to right, as in tinyllm.num.exact
  const range = (n) => Array.from({ length: n }, (_, i) => i);

  // Elements ----------------------------------------------------------------------------------------------------------

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function shape(name, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  }

  // A drawing of its own scale, as wide as the page allows; `label` is what a screen reader says of it.
  function drawing(width, height) {
    return shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", style: `max-width: ${1.5 * width}px` });
  }

  // Axes in a drawing, with what is drawn into them in their own units.
  class Axes {
    constructor(svg, { title, xlabel = "", xlim, ylim, xticks, yticks }) {
      const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
      const [left, right, top, bottom] = [34, width - 6, 26, height - (xlabel ? 36 : 22)];
      this.svg = svg;
      this.x = (x) => left + ((x - xlim[0]) / (xlim[1] - xlim[0])) * (right - left);
      this.y = (y) => bottom - ((y - ylim[0]) / (ylim[1] - ylim[0])) * (bottom - top);
      svg.replaceChildren(shape("title", {}, title));
      svg.setAttribute("aria-label", title);
      this.text(title, (left + right) / 2, 14, { "text-anchor": "middle", class: "title" });
      if (xlabel) this.text(xlabel, (left + right) / 2, height - 6, { "text-anchor": "middle" });
      svg.append(shape("path", { d: `M${left} ${top}V${bottom}H${right}`, class: "axis" }));
      for (const tick of xticks) {
        const [at, label] = Array.isArray(tick) ? tick : [tick, String(tick)];
        svg.append(shape("path", { d: `M${this.x(at)} ${bottom}v4`, class: "axis" }));
        this.text(label, this.x(at), bottom + 15, { "text-anchor": "middle" });
      }
      for (const at of yticks) {
        svg.append(shape("path", { d: `M${left} ${this.y(at)}h-4`, class: "axis" }));
        this.text(String(at), left - 7, this.y(at) + 4, { "text-anchor": "end" });
      }
    }

    text(text, x, y, attributes = {}) {
      this.svg.append(shape("text", { x, y, ...attributes }, text));
    }

    line(points, colour, attributes = {}) {
      const d = points.map(([x, y], i) => `${i ? "L" : "M"}${this.x(x).toFixed(2)} ${this.y(y).toFixed(2)}`).join("");
      this.svg.append(shape("path", { d, fill: "none", stroke: colour, "stroke-width": 1.8, ...attributes }));
    }

    dot(x, y, radius, colour, what) {
      const at = { cx: this.x(x), cy: this.y(y), r: radius, fill: colour };
      this.svg.append(shape("circle", { ...at, "data-what": what, "data-x": x, "data-y": y }));
    }

    square(x, y, side, colour, what) {
      const at = { x: this.x(x) - side / 2, y: this.y(y) - side / 2, width: side, height: side, fill: colour };
      this.svg.append(shape("rect", { ...at, "data-what": what, "data-x": x, "data-y": y }));
    }

    star(x, y, radius, colour, what) {
      const points = range(10).map((i) => {
        const [r, turn] = [i % 2 ? radius * 0.4 : radius, (Math.PI * i) / 5];
        return `${this.x(x) + r * Math.sin(turn)},${this.y(y) - r * Math.cos(turn)}`;
      });
      const marks = { "data-what": what, "data-x": x, "data-y": y };
      this.svg.append(shape("polygon", { points: points.join(" "), fill: colour, ...marks }));
    }

    bar(x, from, to, width, colour, what) {
      const [left, right] = [this.x(x - width / 2), this.x(x + width / 2)];
      const at = { x: left, y: this.y(to), width: right - left, height: Math.max(0, this.y(from) - this.y(to)) };
      this.svg.append(shape("rect", { ...at, fill: colour, "data-what": what, "data-x": x, "data-y": to - from }));
    }
  }

  // Round ticks from 0 to `top`, at most six.
  function ticks(top) {
    const step = [0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].find((size) => top / size <= 5.5) ?? top / 5;
    return range(Math.floor(top / step + 1e-9) + 1).map((i) => Number((i * step).toFixed(6)));
  }

  // The explorables: each gives what to show and a function from state to words that draws on the way --------------------

  const EXPLORABLES = {};

  EXPLORABLES.acceptance = ({ longest, runs }, palette) => {
    const panels = [drawing(240, 220), drawing(240, 220), drawing(240, 220)];
    const kept = (alpha, k) => total(range(k).map((i) => alpha ** (i + 1)));
    const speedup = (alpha, cost, k) => (1 + kept(alpha, k)) / (1 + cost * k);
    const rate = (alpha, k) => (k ? kept(alpha, k) / k : NaN);
    const alphaOf = (run) => run.accepted / (run.accepted + run.rejected);
    const grid = range(51).map((i) => i / 50);
    const inUnit = { xlabel: "alpha", xlim: [-0.02, 1.02], xticks: [0, 0.2, 0.4, 0.6, 0.8, 1] };

    function update({ alpha, k, cost }) {
      const lengths = range(longest + 1).map((n) => speedup(alpha, cost, n));
      const highest = Math.max(...lengths);
      const best = lengths.indexOf(highest);
      const now = { tokens: 1 + kept(alpha, k), rate: rate(alpha, k), speedup: lengths[k] };
      const here = runs.filter((run) => run.k === k);

      const room = [5, 9, longest + 1].find((limit) => k < limit);
      const tokens = new Axes(panels[0], {
        ...inUnit, title: `tokens per pass, k = ${k}`, ylim: [0, room + 0.6], yticks: ticks(room + 0.6),
      });
      tokens.line(grid.map((a) => [a, 1 + kept(a, k)]), palette.target);
      tokens.dot(alpha, now.tokens, 5, palette.rejected, "tokens");

      const rates = new Axes(panels[1], {
        ...inUnit, title: "acceptance rate", ylim: [0, 1.05], yticks: [0, 0.2, 0.4, 0.6, 0.8, 1],
      });
      rates.line([[0, 0], [1, 1]], palette.line, { "stroke-dasharray": "1 3", "stroke-width": 1 });
      if (k) {
        rates.line(grid.map((a) => [a, rate(a, k)]), palette.target);
        rates.dot(alpha, now.rate, 5, palette.rejected, "rate");
      }
      for (const run of here) {
        tokens.square(alphaOf(run), run.tokens_per_pass, 7, palette.draft, "run");
        rates.square(alphaOf(run), run.accepted / Math.max(1, run.drafted), 7, palette.draft, "run");
      }

      const top = Math.ceil(2.2 * highest) / 2;
      const speeds = new Axes(panels[2], {
        title: `speedup, best k = ${best}`, xlabel: "k", xlim: [-0.6, longest + 0.6], ylim: [0, top],
        xticks: [0, 5, 10, 15], yticks: ticks(top),
      });
      speeds.line([[-0.6, 1], [longest + 0.6, 1]], palette.line, { "stroke-width": 0.8 });
      speeds.line(lengths.map((s, n) => [n, s]), palette.target);
      lengths.forEach((s, n) => speeds.dot(n, s, 2, palette.target, "length"));
      speeds.star(best, highest, 9, palette.kept, "best");
      speeds.dot(k, now.speedup, 5, palette.rejected, "speedup");

      const measured = here.map((run) => `${run.name} ${two(run.tokens_per_pass)} at alpha ${two(alphaOf(run))}`);
      return (
        `alpha ${two(alpha)}, k ${k}: ${two(now.tokens)} tokens per pass` +
        (k ? `, acceptance rate ${two(now.rate)}` : "") +
        `; at a draft cost of ${two(cost)} passes a token the speedup is ${two(now.speedup)}, and the best k is ${best}.` +
        (here.length ? ` Squares, tokens per pass of measured runs: ${measured.join("; ")}.` : "")
      );
    }
    return { parts: panels, update };
  };

  EXPLORABLES.overlap = ({ tokens }, palette) => {
    const panels = [drawing(360, 230), drawing(360, 230)];

    function update(state, rows) {
      for (const i of range(tokens.length)) for (const name of "pq") rows[name + i].hidden = i >= state.n;
      const shares = {};
      for (const name of "pq") {
        const weights = range(state.n).map((i) => state[name + i]);
        const sum = total(weights);
        if (sum === 0) {
          panels.forEach((svg) => svg.replaceChildren());
          return `Every weight of ${name} is 0, so there is nothing to draw a token from: move one of them up.`;
        }
        shares[name] = weights.map((w) => w / sum);
      }
      const { p, q } = shares;
      const shared = p.map((x, i) => Math.min(x, q[i]));
      const alpha = total(shared);
      const tv = 0.5 * total(p.map((x, i) => Math.abs(x - q[i])));
      const missing = p.map((x, i) => Math.max(0, x - q[i]));
      const z = total(missing);
      const residual = z > 0 ? missing.map((x) => x / z) : p;

      const places = { xlim: [-0.6, state.n - 0.4], xticks: range(state.n).map((i) => [i, tokens[i]]) };
      const both = new Axes(panels[0], {
        ...places, title: `overlap, alpha = ${two(alpha)}`, ylim: [0, 1.4], yticks: [0, 0.5, 1],
      });
      const rest = new Axes(panels[1], { ...places, title: "residual", ylim: [0, 1.05], yticks: [0, 0.5, 1] });
      for (const i of range(state.n)) {
        both.bar(i, 0, shared[i], 0.8, palette.kept, "both");
        both.bar(i, shared[i], p[i], 0.8, palette.target, "only p");
        both.bar(i, shared[i], q[i], 0.8, palette.draft, "only q");
        both.bar(i, shared[i], q[i], 0.8, "url(#tinyllm-hatch)", "hatch");
        rest.bar(i, 0, residual[i], 0.8, palette.target, "residual");
      }
      const keys = [
        [palette.kept, `both: kept, ${two(alpha)}`],
        [palette.target, `only p: still missing, ${two(tv)}`],
        [palette.draft, `only q: rejected, ${two(tv)}`],
      ];
      keys.forEach(([colour, label], line) => {
        both.svg.append(shape("rect", { x: 42, y: 26 + 16 * line, width: 10, height: 10, fill: colour }));
        both.text(label, 57, 35 + 16 * line);
      });
      const hatch = shape("pattern", {
        id: "tinyllm-hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
      });
      hatch.append(shape("path", { d: "M0 0V7", stroke: "white", "stroke-width": 2 }));
      both.svg.append(hatch);

      const words = `alpha ${two(alpha)}, total variation ${two(tv)}, together 1: `;
      if (two(tv) === "0.00") return `${words}p and q agree, so a token drawn from q is always kept.`;
      const parts = range(state.n).filter((i) => residual[i] > 0).map((i) => `${tokens[i]} ${two(residual[i])}`);
      return (
        `${words}a token drawn from q is kept ${fixed(100 * alpha, 0)} times in 100; a rejected one is replaced by ` +
        `a draw from the residual: ${parts.join(", ")}.`
      );
    }
    const side = (name) => (row) => new RegExp(`^${name}\\d$`).test(row);
    const columns = [["p, the target", side("p")], ["q, the draft", side("q")]];
    return { parts: panels, update, columns };
  };

  // Controls ----------------------------------------------------------------------------------------------------------

  let made = 0; // for ids

  // A row of the form: a label, and a slider with a number box, or a list. `moved` gets the new value.
  function row(control, moved) {
    const id = `tinyllm-control-${made++}`;
    const label = element("label", { for: id }, control.label);
    const line = element("div", { class: "tinyllm-control", title: control.means });
    if (control.kind === "choice") {
      const list = element("select", { id });
      for (const option of control.options) list.append(element("option", { value: option }, option));
      list.value = control.value;
      list.addEventListener("input", () => moved(list.value));
      line.append(label, list);
      return { line, show: (value) => (list.value = value) };
    }
    const { low: min, high: max, step } = control;
    const digits = [min, max, step].every(Number.isInteger) ? 0 : 2;
    const slider = element("input", { id, type: "range", min, max, step });
    const box = element("input", { type: "number", min, max, step, "aria-label": `${control.label}, as a number` });
    const show = (value) => {
      slider.value = value;
      box.value = value.toFixed(digits);
    };
    slider.addEventListener("input", () => {
      box.value = slider.valueAsNumber.toFixed(digits);
      moved(Number(box.value));
    });
    box.addEventListener("change", () => {
      if (Number.isFinite(box.valueAsNumber)) slider.value = box.valueAsNumber; // which keeps it in range and step
      box.value = slider.valueAsNumber.toFixed(digits);
      moved(Number(box.value));
    });
    show(control.value);
    line.append(label, slider, box);
    return { line, show };
  }

  // The page ----------------------------------------------------------------------------------------------------------

  function start(place) {
    const { name, controls, data, palette } = JSON.parse(place.querySelector("script").textContent);
    if (!(name in EXPLORABLES)) return; // its words stay
    const state = Object.fromEntries(controls.map((control) => [control.name, control.value]));
    const words = element("p", { class: "tinyllm-words", role: "status" });
    const rows = {};
    const move = (changes) => {
      Object.assign(state, changes);
      for (const [key, value] of Object.entries(changes)) rows[key].show(value);
      refresh();
    };
    const { parts, update, columns = [], above = [] } = EXPLORABLES[name](data, palette, { state, move });
    const lines = {};
    const refresh = () => (words.textContent = update(state, lines));

    const form = element("div", { class: "tinyllm-controls", role: "group", "aria-label": `Controls: ${name}` });
    const sides = columns.map(([head]) => element("div", {}, element("b", {}, head)));
    for (const control of controls) {
      const made = row(control, (value) => {
        state[control.name] = value;
        refresh();
      });
      rows[control.name] = made;
      lines[control.name] = made.line;
      made.line.dataset.control = control.name;
      const side = columns.findIndex(([, belongs]) => belongs(control.name));
      (side < 0 ? form : sides[side]).append(made.line);
    }
    if (sides.length) form.append(element("div", { class: "tinyllm-columns" }, ...sides));
    form.append(...above);
    refresh();
    place.classList.add("tinyllm-started", "mathjax_ignore");
    place.replaceChildren(form, element("div", { class: "tinyllm-picture" }, ...parts), words);
  }

  for (const place of document.querySelectorAll("div.tinyllm-explorable[data-name]")) start(place);
})();
