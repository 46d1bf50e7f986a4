// Which views of its graph each client relies on, and how that came about.
(() => {
  fq.drawers.views = () => {
    const runs = fq.runs().filter((run) => run.seeds.some((seed) => seed.views));
    if (!fq.section("views", runs.length > 0)) return;
    const { run, seed } = chosen(runs);
    const { names, clients, block, rounds, last } = seed.views;
    const colours = coloursOf(runs, names);
    const labels = clients.map((_, i) => (block > 1 ? `${i * block}–${(i + 1) * block - 1}` : fq.clientName(seed, i)));
    const other = seed.best !== null && last !== null && seed.best !== last;
    fq.by("views-when").textContent = `The bars show the mixtures after the last round${other ? `; the results are of round ${seed.best}` : ""}.`;
    drawBars(run, seed, labels, colours);
    fq.by("views-rounds").hidden = rounds.length < 2;
    if (rounds.length > 1) drawRounds(run, seed, colours);
    fq.legend(fq.by("views-legend"), names, colours);
    fq.table(
      fq.by("views-table"), `Weights of the views of ${run.label}, seed ${seed.seed}`, [block > 1 ? "Clients" : "Client", ...names],
      () => clients.map((weights, i) => [labels[i], ...names.map((_, k) => fq.fixed(weights?.[k]))]),
    );
  };

  /** A view has one colour in all runs. */
  function coloursOf(runs, names) {
    const all = [...new Set(runs.flatMap((run) => run.seeds.flatMap((seed) => seed.views?.names ?? [])))];
    const colours = fq.colours(all.length);
    return names.map((name) => colours[all.indexOf(name)]);
  }

  /** Bring the selects in line with what there is, and say what is chosen. */
  function chosen(runs) {
    const state = fq.state.views;
    // A run that is switched off stays to be looked at when nothing else is there.
    const offered = runs.filter((run) => !fq.state.hidden.has(run.label));
    const pool = offered.length ? offered : runs;
    state.run = fq.choices(fq.by("views-run"), pool.map((run) => [run.label, run.label]), state.run);
    fq.by("views-run-field").hidden = runs.length < 2;
    const run = pool.find((each) => each.label === state.run);
    const seeds = run.seeds.filter((seed) => seed.views);
    state.seed = fq.choices(fq.by("views-seed"), seeds.map((seed) => [seed.seed, String(seed.seed)]), state.seed);
    fq.by("views-seed-field").hidden = seeds.length < 2;
    return { run, seed: seeds.find((each) => String(each.seed) === state.seed) };
  }

  const height = (count) => 46 + Math.min(560, Math.max(150, count * 22));

  function drawBars(run, seed, labels, colours) {
    const theme = fq.theme();
    const { names, clients, block } = seed.views;
    const room = fq.width(fq.by("views-chart")) < 460 ? 84 : 120, line = clients.length > 60 ? 0 : 0.75;
    fq.draw("views-chart", height(clients.length), describe(run, seed), {
      grid: { left: fq.nameWidth(labels, room) + 14, right: 14, top: 4, bottom: 42, containLabel: false },
      xAxis: fq.axis(theme, { type: "value", name: "Weight", nameGap: 26, min: 0, max: 1 }),
      yAxis: fq.axis(theme, { type: "category", data: labels, inverse: true, splitLine: { show: false }, axisLabel: { color: theme.ink, width: room, overflow: "truncate", hideOverlap: true } }),
      tooltip: {
        ...fq.tooltip(theme), trigger: "axis", axisPointer: { type: "shadow", z: -1, shadowStyle: { color: theme.faint, opacity: 0.35 } },
        formatter: ([{ dataIndex: i }]) => tip(block > 1 ? `Clients ${labels[i]}` : fq.clientTitle(seed, i), names, clients[i], colours),
      },
      series: names.map((name, k) => ({ type: "bar", name, stack: "all", barCategoryGap: "22%", data: clients.map((weights) => weights?.[k] ?? 0), itemStyle: { color: colours[k], borderColor: theme.paper, borderWidth: line }, emphasis: { disabled: true } })),
    });
  }

  function drawRounds(run, seed, colours) {
    const theme = fq.theme();
    const { names, clients, rounds, byRound } = seed.views;
    const best = { silent: true, symbol: "none", animation: false, data: seed.best === null ? [] : [{ xAxis: seed.best }], lineStyle: { color: theme.ink, width: 1.5, type: [4, 3] }, label: { formatter: "best round", color: theme.ink, fontSize: 12 } };
    fq.draw("views-rounds-chart", Math.min(320, height(clients.length)), describeRounds(run, seed), {
      grid: { left: 52, right: 34, top: 22, bottom: 42, containLabel: false },
      xAxis: fq.axis(theme, { type: "value", name: "Round", nameGap: 26, min: rounds[0], max: rounds.at(-1), minInterval: 1, splitLine: { show: false }, axisLabel: { hideOverlap: true } }),
      yAxis: fq.axis(theme, { type: "value", name: "Weight", nameGap: 36, min: 0, max: 1 }),
      tooltip: {
        ...fq.tooltip(theme), trigger: "axis", axisPointer: { type: "line", lineStyle: { color: theme.soft, type: "solid", width: 1 } },
        formatter: ([{ dataIndex: i }]) => tip(`Round ${rounds[i]}`, names, byRound[i], colours),
      },
      series: names.map((name, k) => ({
        type: "line", name, stack: "all", symbol: "none", silent: true, data: rounds.map((round, i) => [round, byRound[i][k]]),
        lineStyle: { width: 0 }, areaStyle: { color: colours[k], opacity: 1 }, emphasis: { disabled: true }, markLine: k ? undefined : best, z: 2,
      })),
    });
  }

  const tip = (title, names, weights, colours) =>
    fq.tip(title, weights ? names.map((name, k) => [colours[k], name, fq.fixed(weights[k])]) : [[null, "not known"]]);

  /** The views with their weights, the largest first. */
  const listed = (names, weights) => names.map((name, k) => [name, weights[k]]).sort((a, b) => b[1] - a[1]).map(([name, weight]) => `${name} ${fq.fixed(weight)}`).join(", ");

  function describe(run, seed) {
    const { names, clients } = seed.views, known = clients.filter((weights) => weights !== null);
    return `Stacked bar chart of the weights of ${run.label}'s views, a bar a client, after the last round. On average: ${listed(names, names.map((_, k) => fq.mean(known.map((weights) => weights[k]))))}.`;
  }

  function describeRounds(run, seed) {
    const { names, rounds, byRound } = seed.views;
    return `Area chart of the weights of ${run.label}'s views by everyone's votes, from round ${rounds[0]} (${listed(names, byRound[0])}) to round ${rounds.at(-1)} (${listed(names, byRound.at(-1))}).`;
  }
})();
