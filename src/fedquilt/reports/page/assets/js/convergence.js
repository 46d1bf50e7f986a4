// Test and validation against the round.
(() => {
  const height = () => (fq.state.printing || fq.width(fq.by("convergence-chart")) < 500 ? 310 : 400);

  fq.drawers.convergence = () => {
    const all = fq.runs().filter((run) => run.curve.rounds.length);
    if (!fq.section("convergence", all.length > 0)) return;
    const theme = fq.theme();
    const runs = all.filter((run) => !fq.state.hidden.has(run.label));
    const last = Math.max(...all.map((run) => run.curve.rounds.at(-1)));
    const lines = runs.map((run) => stretched(run, last));
    const metric = all[0].metric;
    fq.draw("convergence-chart", height(), describe(runs, metric), {
      grid: { left: 52, right: 18, top: 14, bottom: 48, containLabel: false },
      xAxis: fq.axis(theme, { type: "value", name: "Round", nameGap: 28, min: "dataMin", max: Math.max(last, 1), minInterval: 1, splitLine: { show: false }, axisLine: { show: true, lineStyle: { color: theme.faint } } }),
      yAxis: fq.axis(theme, { type: "value", name: metric, nameGap: 38, scale: true, ...span(runs, lines) }),
      tooltip: {
        ...fq.tooltip(theme),
        trigger: "axis",
        axisPointer: { type: "line", lineStyle: { color: theme.soft, type: "solid", width: 1 } },
        formatter: (points) => tip(runs, lines, points[0].axisValue),
      },
      series: lines.flatMap((line, i) => series(runs[i], line, theme)),
    });
    fq.by("convergence-legend").replaceChildren(...runs.map((run) => fq.make("li", {}, fq.lineSwatch(fq.look(run.label)), run.label)));
    table(all, metric);
  };

  /** A method that needs one round only is a level line beside the others. */
  function stretched(run, last) {
    const { rounds, test, deviation, val } = run.curve;
    if (rounds.length > 1 || last === rounds[0]) return run.curve;
    const twice = (values) => [values[0], values[0]];
    return { rounds: [rounds[0], last], test: twice(test), deviation: twice(deviation), val: twice(val) };
  }

  function series(run, line, theme) {
    const { colour, dash } = fq.look(run.label);
    const points = (values) => line.rounds.map((round, i) => [round, values[i]]);
    const plain = { type: "line", showSymbol: false, connectNulls: true, silent: true, emphasis: { disabled: true }, clip: true };
    const best = fq.best(run.curve);
    return [
      run.seeds.length > 1 && { type: "custom", silent: true, clip: true, z: 1, renderItem: band(line, colour), data: [[line.rounds[0], 0]], encode: { x: 0, y: -1 }, tooltip: { show: false } },
      { ...plain, name: `${run.label} validation`, z: 2, symbol: "none", data: points(line.val), lineStyle: { color: colour, width: 1, type: [3, 3], opacity: 0.85 } },
      { ...plain, name: run.label, z: 3, symbol: "circle", symbolSize: 7, itemStyle: { color: colour }, data: points(line.test), lineStyle: { color: colour, width: 2.25, type: dash } },
      best !== null && { type: "scatter", silent: true, z: 4, clip: true, symbolSize: 11, data: [[run.curve.rounds[best], run.curve.test[best]]], itemStyle: { color: colour, borderColor: theme.paper, borderWidth: 2, opacity: 1 } },
    ].filter(Boolean);
  }

  function band(line, colour) {
    return (_, api) => {
      const seen = line.rounds.map((_, i) => i).filter((i) => line.test[i] !== null && line.deviation[i] !== null);
      const edge = (sign) => seen.map((i) => api.coord([line.rounds[i], line.test[i] + sign * line.deviation[i]]));
      return { type: "polygon", shape: { points: [...edge(1), ...edge(-1).reverse()] }, style: { fill: colour, opacity: fq.dark() ? 0.24 : 0.15 }, silent: true };
    };
  }

  /** Where the axis begins and ends. Zoomed in: what the last two thirds of the rounds span. */
  function span(runs, lines) {
    const values = [];
    lines.forEach((line, k) => {
      const last = line.rounds.at(-1);
      line.rounds.forEach((round, i) => {
        if (fq.state.zoom && round < last / 3) return;
        const deviation = runs[k].seeds.length > 1 ? line.deviation[i] ?? 0 : 0;
        for (const value of [line.test[i] === null ? null : line.test[i] - deviation, line.test[i] === null ? null : line.test[i] + deviation, line.val[i]]) {
          if (value !== null) values.push(value);
        }
      });
    });
    if (!values.length) return {};
    const low = Math.min(...values), high = Math.max(...values);
    const step = [0.5, 1, 2, 5, 10, 20].find((size) => (high - low) / size <= 7) ?? 25;
    return { min: Math.max(0, Math.floor(low / step) * step), max: Math.min(100, Math.ceil(high / step) * step), interval: step };
  }

  /** The values of a curve at the round nearest to `round`. */
  function at(line, round) {
    let near = 0;
    line.rounds.forEach((one, i) => {
      if (Math.abs(one - round) < Math.abs(line.rounds[near] - round)) near = i;
    });
    return { round: line.rounds[near], test: line.test[near], deviation: line.deviation[near], val: line.val[near] };
  }

  function score(run, { test, deviation }) {
    return fq.fixed(test) + (run.seeds.length > 1 && test !== null ? ` ± ${fq.fixed(deviation)}` : "");
  }

  function tip(runs, lines, round) {
    const rows = runs.map((run, i) => ({ run, here: at(lines[i], round) })).sort((a, b) => (b.here.test ?? -1) - (a.here.test ?? -1));
    return fq.tip(`Round ${Math.round(round)}`, [
      [null, "", "test", "val"],
      ...rows.map(({ run, here }) => [fq.look(run.label).colour, run.label, score(run, here), fq.fixed(here.val)]),
    ]);
  }

  function describe(runs, metric) {
    const parts = runs.map((run) => {
      const best = fq.best(run.curve);
      return best === null ? `${run.label} has no value yet` : `${run.label} has ${fq.fixed(run.curve.test[best])} at round ${run.curve.rounds[best]}`;
    });
    return `Line chart of ${metric} against the round. At the best mean validation, ${parts.join("; ")}.`;
  }

  function table(runs, metric) {
    const rounds = [...new Set(runs.flatMap((run) => run.curve.rounds))].sort((a, b) => a - b);
    const count = Math.min(21, rounds.length);
    const some = [...new Set(Array.from({ length: count }, (_, i) => rounds[Math.round((i * (rounds.length - 1)) / Math.max(1, count - 1))]))];
    fq.table(
      fq.by("convergence-table"), `Test (and validation), ${metric}, by round`,
      ["Round", ...runs.map((run) => run.label)],
      () => some.map((round) => [round, ...runs.map((run) => {
        const i = run.curve.rounds.indexOf(round);
        return i < 0 ? "" : `${fq.fixed(run.curve.test[i])} (${fq.fixed(run.curve.val[i])})`;
      })]),
    );
  }
})();
