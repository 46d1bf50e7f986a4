// Client by client, how alike they are, over the rounds.
(() => {
  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const NONE = 4095;
  const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];

  fq.drawers.similarity = () => {
    const runs = fq.runs().filter((run) => run.seeds.some((seed) => seed.similarities));
    if (!fq.section("similarity", runs.length > 0)) return;
    const { run, seed, factor, one, place } = chosen(runs);
    const state = fq.state.similarity;
    const values = matrix(one, factor);
    const all = seed.similarities.map((each) => matrix(each, factor));
    const [low, high] = state.scale === "fixed" ? fixedSpan(all) : spanOf(state.scale === "all" ? all : [values]);
    fq.by("similarity-range").textContent = `Colours go from ${short(low)} to ${short(high)}, ${RANGES[state.scale]}.`;
    const order = state.order === "alike" ? alike(values) : values.map((_, i) => i);
    const names = order.map((i) => (one.block > 1 ? `${i * one.block}–${(i + 1) * one.block - 1}` : fq.clientName(seed, i)));
    drawHeat(run, seed, one, values, order, names, low, high);
    fq.table(
      fq.by("similarity-table"), `Similarity of ${run.label}, seed ${seed.seed}, after ${when(one, true)}`, ["Client", ...names],
      () => order.map((i, row) => [names[row], ...order.map((j) => (i === j && one.block === 1 ? "" : short(values[i][j])))]),
    );
    fq.by("similarity-less").hidden = !fq.data.similaritiesLeftOut;
    const slider = fq.by("similarity-round");
    slider.setAttribute("aria-valuetext", when(one, true));
    fq.by("similarity-when").textContent = when(one, true);
    fq.by("similarity-ticks").replaceChildren(...seed.similarities.map((each) => fq.make("span", { class: each.best ? "best" : false }, each.round < 0 ? "best" : String(each.round))));
    fq.by("similarity-round-field").hidden = seed.similarities.length < 2;
    slider.max = seed.similarities.length - 1;
    slider.value = place;
  };

  /** Bring the selects in line with what there is, and say what is chosen. */
  function chosen(runs) {
    const state = fq.state.similarity;
    // A run that is switched off stays to be looked at when nothing else is there.
    const offered = runs.filter((run) => !fq.state.hidden.has(run.label));
    const pool = offered.length ? offered : runs;
    state.run = fq.choices(fq.by("similarity-run"), pool.map((run) => [run.label, run.label]), state.run);
    const run = pool.find((each) => each.label === state.run);
    const seeds = run.seeds.filter((seed) => seed.similarities);
    state.seed = fq.choices(fq.by("similarity-seed"), seeds.map((seed) => [seed.seed, String(seed.seed)]), state.seed);
    fq.by("similarity-seed-field").hidden = seeds.length < 2;
    const seed = seeds.find((each) => String(each.seed) === state.seed);
    const factors = seed.similarities[0].levels.length;
    const pairs = factors > 1 ? [["mean", "mean of all"], ...Array.from({ length: factors }, (_, k) => [k, String(k + 1)])] : [["0", "0"]];
    const factor = fq.choices(fq.by("similarity-factor"), pairs, state.factor);
    fq.by("similarity-factor-field").hidden = factors < 2;
    const best = seed.similarities.findIndex((each) => each.best);
    if (state.place === null) state.place = best >= 0 ? best : seed.similarities.length - 1;
    const place = Math.min(state.place, seed.similarities.length - 1);
    return { run, seed, factor, one: seed.similarities[place], place };
  }

  const when = (one, spoken) => (one.round < 0 ? "the best round" : `round ${one.round}${one.best && spoken ? " (best)" : ""}`);
  const short = (value) => (value === null ? "–" : value.toPrecision(3));

  /** [M][M] values of a factor, or the mean over factors; null where there is none. */
  function matrix(one, factor) {
    if (factor !== "mean") return unpacked(one, Number(factor));
    const all = one.levels.map((_, k) => unpacked(one, k));
    return all[0].map((row, i) => row.map((_, j) => fq.mean(all.map((square) => square[i][j]).filter((value) => value !== null))));
  }

  function unpacked(one, k) {
    const { size, low, high, symmetric } = one, text = one.levels[k];
    const out = Array.from({ length: size }, () => new Array(size).fill(null));
    let at = 0;
    for (let i = 0; i < size; i++) {
      for (let j = symmetric ? i : 0; j < size; j++, at += 2) {
        const level = DIGITS.indexOf(text[at]) * 64 + DIGITS.indexOf(text[at + 1]);
        const value = level === NONE ? null : low[k] + (level / 1000) * (high[k] - low[k]);
        out[i][j] = value;
        if (symmetric) out[j][i] = value;
      }
    }
    return out;
  }

  const RANGES = {
    fixed: "the same for every round, seed and run",
    round: "the lowest and the highest similarity of this round",
    all: "the lowest and the highest similarity of all rounds of this seed",
  };

  /** From 0 to 1 or from -1 to 1 where all values lie there, so that a colour means the same everywhere; else their span. */
  function fixedSpan(squares) {
    const [low, high] = spanOf(squares);
    if (high > 1 || low < -1) return [low, high];
    return low < 0 ? [-1, 1] : [0, 1];
  }

  function spanOf(squares) {
    const others = squares.flatMap((square) => square.flatMap((row, i) => row.filter((value, j) => value !== null && i !== j)));
    if (!others.length) return [0, 1];
    const low = others.reduce((a, b) => Math.min(a, b)), high = others.reduce((a, b) => Math.max(a, b));
    return high > low ? [low, high] : [low - 0.5, high + 0.5];
  }

  /** An order in which alike clients stand together: clusters joined by their mean similarity, ends matched. */
  function alike(values) {
    const between = (a, b) => (values[a][b] ?? 0) + (values[b][a] ?? 0);
    const sums = values.map((row, i) => row.map((_, j) => between(i, j)));
    let clusters = values.map((_, i) => [i]);
    while (clusters.length > 1) {
      let best = [0, 1], most = -Infinity;
      for (let a = 0; a < clusters.length; a++) for (let b = a + 1; b < clusters.length; b++) {
        const mean = sums[a][b] / (clusters[a].length * clusters[b].length);
        if (mean > most) [most, best] = [mean, [a, b]];
      }
      const [a, b] = best;
      let left = clusters[a], right = clusters[b];
      const ends = [[left, right], [left.toReversed(), right], [left, right.toReversed()], [left.toReversed(), right.toReversed()]];
      [left, right] = ends.reduce((x, y) => (between(y[0].at(-1), y[1][0]) > between(x[0].at(-1), x[1][0]) ? y : x));
      clusters[a] = [...left, ...right];
      for (let c = 0; c < clusters.length; c++) { sums[a][c] += sums[b][c]; sums[c][a] = sums[a][c]; }
      clusters.splice(b, 1);
      sums.splice(b, 1);
      for (const row of sums) row.splice(b, 1);
    }
    return clusters[0];
  }

  function drawHeat(run, seed, one, values, order, names, low, high) {
    const theme = fq.theme(), size = order.length, element = fq.by("similarity-chart");
    const width = fq.width(element), left = 46, right = 10, bottom = 92;
    const side = width - left - right;
    const cell = side / size;
    const label = cell >= 34 && size <= 16;
    const data = order.flatMap((i, row) => order.map((j, column) => {
      const value = values[i][j];
      if ((i === j && one.block === 1) || value === null) return { value: [column, row, low], visualMap: false, itemStyle: { color: theme.diagonal }, label: { show: false }, pair: [i, j, null] };
      const ink = (value - low) / (high - low) > 0.62 ? "#111111" : "#ffffff";
      return { value: [column, row, value], pair: [i, j, value], ...(label ? { label: { color: ink } } : {}) };
    }));
    const axis = (more) => fq.axis(theme, { type: "category", data: names, name: "Client", splitLine: { show: false }, splitArea: { show: false }, axisLabel: { fontSize: 11, hideOverlap: true, interval: cell >= 18 ? 0 : "auto", overflow: "truncate", ...(seed.names ? { width: Math.max(cell - 4, 30) } : {}) }, ...more });
    fq.draw("similarity-chart", Math.round(side + 10 + bottom), describe(run, one, low, high, size), {
      grid: { left, right, top: 10, bottom, containLabel: false },
      xAxis: axis({ nameGap: 26 }),
      yAxis: axis({ nameGap: 30, inverse: true }),
      visualMap: {
        type: "continuous", min: low, max: high, dimension: 2, calculable: false, orient: "horizontal", left: left - 4, bottom: 2,
        itemWidth: 12, itemHeight: Math.min(220, side * 0.6), inRange: { color: VIRIDIS }, text: [short(high), short(low)],
        textStyle: { color: theme.soft, fontSize: 12 }, hoverLink: false,
      },
      tooltip: { ...fq.tooltip(theme), trigger: "item", formatter: (params) => tip(params.data.pair, seed, one) },
      series: [{
        type: "heatmap", data, label: { show: label, fontSize: cell > 44 ? 12 : 10, formatter: (params) => short(params.data.pair[2]).replace(/^0\./, ".") },
        itemStyle: { borderColor: theme.paper, borderWidth: size <= 30 ? 1 : 0 }, emphasis: { disabled: size > 30, itemStyle: { borderColor: theme.ink, borderWidth: 2 } },
      }],
    });
  }

  function tip([i, j, value], seed, one) {
    const name = (k) => (one.block > 1 ? `clients ${k * one.block}–${(k + 1) * one.block - 1}` : fq.clientTitle(seed, k));
    const title = i === j && one.block === 1 ? `${name(i)} and itself` : `${name(i)} and ${name(j)}`;
    return fq.tip(title[0].toUpperCase() + title.slice(1), value === null ? [] : [[null, "similarity", value.toPrecision(4)]]);
  }

  function describe(run, one, low, high, size) {
    return `Heatmap of the similarity between ${size} ${one.block > 1 ? "groups of clients" : "clients"} to ${run.label} after ${when(one, true)}; colours go from ${short(low)} to ${short(high)}.`;
  }
})();
