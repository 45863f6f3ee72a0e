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

  // Nothing is left of what was drawn, its name included.
  function clear(svg) {
    svg.replaceChildren();
    svg.removeAttribute("aria-label");
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
      rates.text("dotted: alpha itself", rates.x(0.03), rates.y(0.98));
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

      const elsewhere = [...new Set(runs.map((run) => run.k))].sort((a, b) => a - b).join(", ");
      const measured = here.map((run) => `${run.name} ${two(run.tokens_per_pass)} at alpha ${two(alphaOf(run))}`);
      return (
        `alpha ${two(alpha)}, k ${k}: ${two(now.tokens)} tokens per pass` +
        (k ? `, acceptance rate ${two(now.rate)}` : "") +
        `; at a draft cost of ${two(cost)} passes a token the speedup is ${two(now.speedup)}, and the best k up to ${longest} is ${best}.` +
        (here.length ? ` Squares, tokens per pass of measured runs: ${measured.join("; ")}.`
          : elsewhere ? ` The measured runs, drawn as squares, are at k ${elsewhere}.` : "")
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
          panels.forEach(clear);
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
    const columns = [["p, the target: weights", side("p")], ["q, the draft: weights", side("q")]];
    return { parts: panels, update, columns };
  };

  // Tokens by origin, and cells of the cache by state: a letter, a name, a colour of the palette.
  const ORIGINS = {
    p: ["prompt", "prompt"], k: ["kept draft", "kept"], c: ["correction", "correction"], b: ["bonus", "bonus"],
    d: ["draft", "draft"], r: ["rejected", "rejected"],
  };
  const CELLS = {
    h: ["held from before", "prompt"], w: ["written", "draft"], k: ["written and kept", "kept"], x: ["truncated", "rejected"],
  };
  const tint = (colour) => `${colour}99`; // so that dark letters can be read on it

  // A piece of text in the colour of its origin; what cannot be seen gets a mark.
  function token(text, origin, palette) {
    const shown = text.replaceAll("\t", "→").replaceAll("\n", "↵\n") || "∅";
    const made = element("span", { class: `tinyllm-token tinyllm-${origin}`, "data-origin": origin }, shown);
    made.style.backgroundColor = tint(palette[ORIGINS[origin][1]]);
    return made;
  }

  function legend(letters, palette, ...more) {
    const keys = [...letters].map((letter) => {
      const swatch = element("i");
      swatch.style.backgroundColor = tint(palette[ORIGINS[letter][1]]);
      return element("span", {}, swatch, ORIGINS[letter][0]);
    });
    return element("div", { class: "tinyllm-legend" }, ...keys, ...more);
  }

  // Text that changes in room that does not: `longest` stands behind it, unseen.
  function roomFor(longest) {
    const shown = element("div", { class: "tinyllm-text" });
    const room = element("div", { class: "tinyllm-text tinyllm-room", "aria-hidden": "true" }, longest);
    return [element("div", { class: "tinyllm-stack" }, room, shown), shown, room];
  }

  // A button that calls `tick` every `seconds` until that says false, or until it is pressed again.
  function player(seconds, begin, tick) {
    const button = element("button", { type: "button" }, "Play");
    let timer = 0;
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      button.textContent = "Play";
    };
    button.addEventListener("click", () => {
      if (timer) return stop();
      begin();
      button.textContent = "Pause";
      timer = setInterval(() => tick() || stop(), 1000 * seconds);
    });
    return { button, stop };
  }

  EXPLORABLES.round_player = ({ pieces, steps, slots, total: tokens }, palette, { state, move }) => {
    const COLUMNS = 45; // of the cache
    const last = steps.length - 1;
    const text = (step) => steps[step].ids.map((id) => pieces[id]).join("");
    const longest = range(steps.length).reduce((a, b) => (text(b).length > text(a).length ? b : a));
    const [stack, shown] = roomFor(text(longest).replaceAll("\n", "↵\n"));
    const pending = element("span", {}, element("i", { class: "tinyllm-pending" }), "pending");
    const title = element("p", { class: "tinyllm-caption" });
    const rows = Math.ceil(slots / COLUMNS);
    const cells = drawing(COLUMNS * 12, rows * 14);
    const passes = drawing(300, 36); // narrower, so that its words can be read on a phone
    for (const svg of [cells, passes]) svg.classList.add("tinyllm-wide");

    const by = (change, label) => {
      const button = element("button", { type: "button" }, label);
      button.addEventListener("click", () => {
        play.stop();
        move({ step: Math.min(last, Math.max(0, state.step + change)) });
      });
      return button;
    };
    const play = player(
      1.2,
      () => move({ step: state.step === last ? 0 : state.step + 1 }),
      () => {
        if (state.step < last) move({ step: state.step + 1 });
        return state.step < last;
      },
    );
    const buttons = element("div", { class: "tinyllm-buttons" }, play.button, by(-1, "Back"), by(1, "Step"));

    function update({ step }) {
      const now = steps[step];
      const known = now.ids.length - [...now.origins].filter((letter) => "dr".includes(letter)).length;
      let seen = 0;
      shown.replaceChildren(
        ...now.ids.map((id, i) => {
          const origin = now.origins[i];
          const made = token(pieces[id], origin, palette);
          if (!"dr".includes(origin) && ++seen > known - now.pending) made.classList.add("tinyllm-pending");
          return made;
        }),
      );
      const named = Object.entries(CELLS)
        .map(([letter, [label]]) => [now.cells.split(letter).length - 1, label])
        .filter(([count]) => count);
      const cut = now.cells.split("x").length - 1;
      const remain = cut ? `; ${now.cells.length - cut} remain` : "";
      title.textContent = named.length
        ? `KV cache, ${now.cells.length} positions: ${named.map(([n, label]) => `${n} ${label}`).join(", ")}${remain}`
        : "KV cache, empty";
      cells.setAttribute("aria-label", title.textContent);
      cells.replaceChildren();
      for (const slot of range(slots)) {
        const letter = now.cells[slot] ?? "";
        const [x, y] = [(slot % COLUMNS) * 12 + 1, Math.floor(slot / COLUMNS) * 14 + 1];
        const looks = letter
          ? { fill: tint(palette[CELLS[letter][1]]), "data-cell": letter }
          : { fill: "none", stroke: "#bbb" };
        cells.append(shape("rect", { x, y, width: 10, height: 12, ...looks }));
        if (letter === "x") cells.append(shape("path", { d: `M${x} ${y + 11}l10 -10`, stroke: palette.line }));
      }
      passes.replaceChildren();
      passes.setAttribute("aria-label", `target passes: ${now.passes}, plain decoding: ${now.plain}`);
      [["target passes", now.passes, "target"], ["plain decoding", now.plain, "prompt"]].forEach(([label, n, colour], i) => {
        const at = { x: 110, y: 18 * i + 2, width: (190 * n) / Math.max(1, tokens), height: 13 };
        passes.append(shape("text", { x: 0, y: 18 * i + 13 }, `${label}: ${n}`));
        passes.append(shape("rect", { ...at, fill: tint(palette[colour]), "data-what": label, "data-x": n }));
      });
      return now.words;
    }
    return { parts: [legend("pkcbdr", palette, pending), stack, title, cells, passes], update, buttons };
  };

  EXPLORABLES.draft_shape = ({ shapes }, palette) => {
    const FEW = 10; // a share of fewer rounds than this is drawn hollow
    const panels = [drawing(360, 230), drawing(360, 230)];

    function update({ text, draft }) {
      const now = shapes[text][draft];
      panels.forEach(clear);
      if (!now.lengths) return now.words;
      const { k, lengths, reached, kept } = now;
      const rounds = total(lengths);
      const ylim = { ylim: [0, 1.1], yticks: [0, 0.5, 1] };

      const byLength = new Axes(panels[0], {
        ...ylim, title: `share of ${rounds} rounds with a draft`, xlabel: "draft tokens kept", xlim: [-0.6, Math.max(k, 1) + 0.6],
        xticks: range(k + 1),
      });
      lengths.forEach((count, length) => {
        const share = count / Math.max(1, rounds);
        byLength.bar(length, 0, share, 0.8, length ? palette.kept : palette.rejected, "length");
        byLength.text(String(count), byLength.x(length), byLength.y(share + 0.02), { "text-anchor": "middle" });
      });

      const byPosition = new Axes(panels[1], {
        ...ylim, title: "share kept, where reached", xlabel: "position in the draft",
        xlim: [0.4, Math.max(k, 1) + 0.6], xticks: range(k).map((i) => i + 1),
      });
      const shares = range(k).filter((i) => reached[i]).map((i) => [i + 1, kept[i] / reached[i]]);
      byPosition.line(shares, palette.target, { "stroke-width": 1 });
      for (const [place, share] of shares) {
        byPosition.dot(place, share, 4.5, palette.target, "share");
        if (reached[place - 1] < FEW) byPosition.dot(place, share, 3, "white", "hollow");
      }
      if (rounds) {
        const alpha = total(kept) / total(reached);
        const dotted = { "stroke-dasharray": "1 3", "stroke-width": 1 };
        byPosition.line([[0.4, alpha], [Math.max(k, 1) + 0.6, alpha]], palette.line, dotted);
        byPosition.text(`dotted: all positions, alpha = ${two(alpha)}`, byPosition.x(0.5), byPosition.y(1.04));
      }
      return now.words;
    }
    return { parts: panels, update };
  };

  EXPLORABLES.pass_cost = ({ n: rows, ratio, roof, words }, palette) => {
    const panel = drawing(480, 260);

    function update({ n }) {
      const top = Math.ceil(1.1 * Math.max(...ratio, ...roof));
      const axes = new Axes(panel, {
        title: "time of a pass over n rows, in passes over one", xlabel: "n, rows in one pass", ylim: [0, top],
        xlim: [0.4, rows.at(-1) + 0.6], xticks: rows.filter((i) => i === 1 || i % 4 === 0), yticks: ticks(top),
      });
      const here = rows.indexOf(n);
      axes.line(rows.map((row) => [row, row]).filter(([, y]) => y <= top), palette.line, {
        "stroke-dasharray": "1 3", "stroke-width": 1,
      });
      axes.line(rows.map((row, i) => [row, roof[i]]), palette.draft);
      axes.line(rows.map((row, i) => [row, ratio[i]]), palette.target);
      rows.forEach((row, i) => axes.dot(row, ratio[i], 2, palette.target, "row"));
      axes.dot(n, ratio[here], 5, palette.rejected, "ratio");
      const keys = [
        [palette.target, "measured"], [palette.draft, "the least this machine allows"], [palette.line, "dotted: n passes"],
      ];
      keys.forEach(([colour, label], line) => {
        panel.append(shape("rect", { x: 296, y: 168 + 16 * line, width: 10, height: 10, fill: colour }));
        axes.text(label, 311, 177 + 16 * line);
      });
      return words[here];
    }
    return { parts: [panel], update };
  };

  EXPLORABLES.live = ({ where, replays }, palette, { state }) => {
    const LETTERS = Object.fromEntries(Object.entries(ORIGINS).map(([letter, [, name]]) => [name, letter]));
    const FRAME = 0.05; // seconds between two looks at what has come out
    const sides = ["steps", "plain"].map((side) => ({ side, caption: element("p", { class: "tinyllm-caption" }) }));
    for (const part of sides) [part.stack, part.shown, part.room] = roomFor("");
    const replay = () => replays.find(({ name }) => name === state.run);
    let time = Infinity;

    function show() {
      const { prompt, draft, [sides[0].side]: fast, [sides[1].side]: slow } = replay();
      for (const [part, steps, name] of [[sides[0], fast, `with ${draft}`], [sides[1], slow, "plain decoding"]]) {
        const out = steps.filter(({ seconds }) => seconds <= time);
        const pieces = out.flatMap((step) => step.pieces);
        const took = Math.min(time, steps.at(-1).seconds);
        part.caption.textContent = `${name}: ${pieces.length} tokens, ${out.length} passes, ${two(took)} s`;
        part.shown.replaceChildren(
          token(prompt, "p", palette), ...pieces.map(([text, name]) => token(text, LETTERS[name], palette)),
        );
        part.room.textContent = [prompt, ...steps.flatMap((step) => step.pieces.map(([text]) => text))].join("");
      }
    }

    const play = player(
      FRAME,
      () => (time = 0),
      () => {
        time += FRAME;
        show();
        return time < Math.max(replay().steps.at(-1).seconds, replay().plain.at(-1).seconds);
      },
    );

    function update() {
      play.stop();
      time = Infinity;
      show();
      return `${where} ${replay().words}`;
    }
    const parts = [legend("pkcb", palette), ...sides.flatMap(({ caption, stack }) => [caption, stack])];
    return { parts, update, buttons: element("div", { class: "tinyllm-buttons" }, play.button) };
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
    const { parts, update, columns = [], buttons = "" } = EXPLORABLES[name](data, palette, { state, move });
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
    form.append(buttons);
    refresh();
    place.classList.add("tinyllm-started", "mathjax_ignore");
    place.replaceChildren(form, element("div", { class: "tinyllm-picture" }, ...parts), words);
  }

  for (const place of document.querySelectorAll("div.tinyllm-explorable[data-name]")) start(place);
})();
