// Each client's metric: dots, and a box over them.
(() => {
  fq.drawers.clients = () => {
    const runs = fq.shown().filter((run) => run.seeds.some((seed) => seed.tests.length));
    if (!fq.section("clients", fq.runs().some((run) => run.seeds.some((seed) => seed.tests.length)))) return;
    const theme = fq.theme();
    const seeds = [...new Set(fq.runs().flatMap((run) => run.seeds.map((seed) => seed.seed)))];
    const several = seeds.length > 1;
    fq.by("clients-seed-field").hidden = !several;
    fq.state.clientsSeed = fq.choices(fq.by("clients-seed"), [["all", "all seeds"], ...seeds.map((seed) => [seed, String(seed)])], fq.state.clientsSeed);
    const dots = runs.map((run) => run.seeds
      .filter((seed) => fq.state.clientsSeed === "all" || String(seed.seed) === fq.state.clientsSeed)
      .flatMap((seed) => seed.tests.map((test, i) => ({ test, seed: seed.seed, client: fq.clientTitle(seed, seed.clients ? seed.clients[i] : i) })))
      .filter((dot) => dot.test !== null));
    const figures = dots.map(summary);
    const metric = fq.runs()[0].metric;
    const names = runs.map((run) => run.label);
    const lowest = Math.min(100, ...dots.flat().map((dot) => dot.test));
    const narrow = fq.width(fq.by("clients-chart")) < 500;
    fq.draw("clients-chart", 62 + runs.length * 54, describe(names, figures, metric), {
      grid: { left: fq.nameWidth(names, narrow ? 90 : 160) + 14, right: 22, top: 6, bottom: 46, containLabel: false },
      xAxis: fq.axis(theme, { type: "value", name: metric, nameGap: 28, min: Math.max(0, Math.floor((lowest - 1) / 10) * 10), max: 100 }),
      yAxis: fq.axis(theme, { type: "category", data: names, inverse: true, splitLine: { show: false }, axisLabel: { color: theme.ink, width: narrow ? 90 : 160, overflow: "truncate" } }),
      tooltip: { ...fq.tooltip(theme), trigger: "item", formatter: (params) => params.data.tip() },
      series: [
        { type: "custom", z: 2, renderItem: box(figures, names, theme), encode: { x: [1, 2], y: 0 }, data: figures.flatMap((one, i) => (one ? [{ value: [i, one.low, one.high], tip: () => boxTip(names[i], one) }] : [])) },
        { type: "custom", z: 3, renderItem: dot(dots, names), encode: { x: 1, y: 0 }, data: dots.flatMap((row, i) => row.map((one, j) => ({ value: [i, one.test, j], tip: () => dotTip(names[i], one, several) }))) },
        { type: "custom", z: 4, silent: true, renderItem: diamond(theme), encode: { x: 1, y: 0 }, data: figures.flatMap((one, i) => (one ? [[i, one.mean]] : [])) },
      ],
    });
    fq.table(
      fq.by("clients-table"), `Test ${metric} over clients`,
      ["Method", "Clients", "Mean", "Lowest", "First quarter", "Median", "Third quarter", "Highest"],
      () => figures.map((one, i) => (one ? [names[i], one.count, ...[one.mean, one.least, one.low, one.median, one.high, one.most].map((v) => fq.fixed(v))] : [names[i], 0, "–", "–", "–", "–", "–", "–"])),
    );
  };

  function summary(dots) {
    if (!dots.length) return null;
    const sorted = dots.map((dot) => dot.test).sort((a, b) => a - b);
    const [low, median, high] = [0.25, 0.5, 0.75].map((share) => fq.quantile(sorted, share));
    return { count: sorted.length, mean: fq.mean(sorted), least: sorted[0], low, median, high, most: sorted.at(-1) };
  }

  function box(figures, names, theme) {
    return (_, api) => {
      const place = api.value(0), one = figures[place], { colour } = fq.look(names[place]);
      const half = Math.min(17, api.size([0, 1])[1] * 0.36);
      const [left, y] = api.coord([one.low, place]), [right] = api.coord([one.high, place]), [middle] = api.coord([one.median, place]);
      return {
        type: "group",
        children: [
          { type: "rect", shape: { x: left, y: y - half, width: Math.max(1, right - left), height: 2 * half, r: 3 }, style: { fill: colour, opacity: fq.dark() ? 0.28 : 0.16 } },
          { type: "line", shape: { x1: middle, x2: middle, y1: y - half, y2: y + half }, style: { stroke: theme.ink, lineWidth: 2 } },
        ],
      };
    };
  }

  function dot(dots, names) {
    return (_, api) => {
      const place = api.value(0), colour = fq.look(names[place]).colour;
      const [x, y] = api.coord([api.value(1), place]);
      // Spread by the golden ratio: even, and the same every time.
      const spread = Math.min(14, api.size([0, 1])[1] * 0.3) * 2 * (((api.value(2) + 1) * 0.6180339887) % 1 - 0.5);
      const many = dots[place].length > 120;
      return { type: "circle", shape: { cx: x, cy: y + spread, r: many ? 2.4 : 3.6 }, style: { fill: colour, opacity: many ? 0.6 : 0.85, stroke: "none" } };
    };
  }

  function diamond(theme) {
    return (_, api) => {
      const [x, y] = api.coord([api.value(1), api.value(0)]);
      return { type: "polygon", shape: { points: [[x, y - 7], [x + 6, y], [x, y + 7], [x - 6, y]] }, style: { fill: theme.paper, stroke: theme.ink, lineWidth: 1.6 } };
    };
  }

  const dotTip = (name, one, several) => fq.tip(`${name}, ${one.client}`, [...(several ? [[null, "seed", String(one.seed)]] : []), [null, "test", fq.fixed(one.test)]]);
  const boxTip = (name, one) => fq.tip(name, [["mean", one.mean], ["median", one.median], ["middle half", null], ["lowest", one.least], ["highest", one.most]].map(([what, value]) => [null, what, value === null ? `${fq.fixed(one.low, 1)} to ${fq.fixed(one.high, 1)}` : fq.fixed(value)]));

  function describe(names, figures, metric) {
    const parts = figures.map((one, i) => (one ? `${names[i]}: median ${fq.fixed(one.median, 1)}, from ${fq.fixed(one.least, 1)} to ${fq.fixed(one.most, 1)}` : `${names[i]}: no value`));
    return `Strip chart of ${metric} of each client by method. ${parts.join("; ")}.`;
  }
})();
