// How many nodes each client holds, and of which classes.
(() => {
  fq.drawers.partition = () => {
    const seeds = new Map();
    for (const run of fq.runs()) for (const seed of run.seeds) if (seed.holdings !== undefined && !seeds.has(seed.seed)) seeds.set(seed.seed, fq.data.holdings[seed.holdings]);
    if (!fq.section("partition", seeds.size > 0)) return;
    fq.by("partition-seed-field").hidden = seeds.size < 2;
    fq.state.partitionSeed = fq.choices(fq.by("partition-seed"), [...seeds.keys()].map((seed) => [seed, String(seed)]), fq.state.partitionSeed);
    const cut = seeds.get(Number(fq.state.partitionSeed));
    const theme = fq.theme();
    const known = cut.counts.length > 0;
    const clients = cut.sizes.map((_, i) => (cut.block > 1 ? `${i * cut.block}–${(i + 1) * cut.block - 1}` : cut.names[i] ?? String(i)));
    const colours = classColours(cut.classes);
    const shares = cut.counts.map((row) => {
      const whole = row.reduce((a, b) => a + b, 0);
      return row.map((count) => (whole ? (100 * count) / whole : 0));
    });
    fq.by("partition-hint").textContent = known
      ? "Above, the nodes of each client; below, how they are shared among the classes."
      : "The nodes of each client.";
    const x = (grid, name, shown) => fq.axis(theme, { type: "category", gridIndex: grid, data: clients, name, nameGap: 28, splitLine: { show: false }, axisLabel: { show: shown, hideOverlap: true } });
    const wide = clients.length > 60 ? 0 : 0.75;
    fq.draw("partition-chart", known ? 400 : 220, describe(cut), {
      grid: known ? [{ left: 52, right: 8, top: 14, height: 86 }, { left: 52, right: 8, top: 124, bottom: 48 }] : [{ left: 52, right: 8, top: 14, bottom: 48 }],
      xAxis: known ? [x(0, "", false), x(1, "Client", true)] : [x(0, "Client", true)],
      yAxis: [
        fq.axis(theme, { type: "value", gridIndex: 0, name: "Nodes", nameGap: 38, splitNumber: 2, axisLabel: { formatter: (value) => (value >= 10000 ? `${value / 1000}k` : String(value)) } }),
        ...(known ? [fq.axis(theme, { type: "value", gridIndex: 1, name: "Share of nodes (%)", nameGap: 38, max: 100 })] : []),
      ],
      tooltip: { ...fq.tooltip(theme), trigger: "axis", axisPointer: { type: "shadow", z: -1, shadowStyle: { color: theme.faint, opacity: 0.35 } }, formatter: (points) => tip(cut, clients, shares, colours, points[0].dataIndex) },
      axisPointer: { link: [{ xAxisIndex: "all" }] },
      series: [
        { type: "bar", name: "nodes", xAxisIndex: 0, yAxisIndex: 0, data: cut.sizes, barCategoryGap: "22%", itemStyle: { color: fq.GREY }, emphasis: { disabled: true } },
        ...cut.classes.map((name, k) => ({ type: "bar", name, stack: "classes", xAxisIndex: 1, yAxisIndex: 1, barCategoryGap: "22%", data: shares.map((row) => row[k]), itemStyle: { color: colours[k], borderColor: theme.paper, borderWidth: wide }, emphasis: { disabled: true } })),
      ],
    });
    fq.legend(fq.by("partition-legend"), cut.classes.map(spoken), colours);
    fq.table(
      fq.by("partition-table"), "Nodes of each client by class", [cut.block > 1 ? "Clients" : "Client", "Nodes", ...cut.classes.map(spoken)],
      () => cut.sizes.map((size, i) => [clients[i], size, ...(cut.counts[i] ?? [])]),
    );
  };

  const spoken = (name) => (/^\d+$/.test(name) ? `class ${name}` : name);

  function classColours(names) {
    const own = names.filter((name) => name !== "others");
    const colours = fq.colours(own.length);
    return names.map((name) => (name === "others" ? fq.GREY : colours[own.indexOf(name)]));
  }

  function tip(cut, clients, shares, colours, place) {
    const rows = cut.classes.map((name, k) => [k, cut.counts[place][k]]).filter(([, count]) => count > 0)
      .map(([k, count]) => [colours[k], spoken(cut.classes[k]), String(count), `${fq.fixed(shares[place][k], 0)} %`]);
    return fq.tip(`Client${cut.block > 1 ? "s" : ""} ${clients[place]}: ${cut.sizes[place].toLocaleString("en")} nodes`, rows);
  }

  function describe(cut) {
    const least = Math.min(...cut.sizes), most = Math.max(...cut.sizes);
    return `Bar chart of the nodes of ${cut.sizes.length} ${cut.block > 1 ? "groups of clients" : "clients"}, from ${least} to ${most}${cut.counts.length ? ", and the share of each class" : ""}.`;
  }
})();
