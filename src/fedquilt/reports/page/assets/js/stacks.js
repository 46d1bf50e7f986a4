// Stacked bars, a bar a method: what crosses by name, and time by phase.
(() => {
  const MOST = 8; // names with a colour of their own
  const OTHERS = "others";

  fq.drawers.bytes = () => {
    const any = fq.runs().some((run) => total(run.upload) + total(run.download) > 0);
    if (!fq.section("bytes", any)) return;
    const runs = fq.shown();
    const names = largest(fq.runs().flatMap((run) => [run.upload, run.download]));
    const most = Math.max(1, ...runs.flatMap((run) => [total(run.upload), total(run.download)]));
    bars("upload-chart", "Bytes uploaded a round", runs, (run) => run.upload, names, fq.bytes, most);
    bars("download-chart", "Bytes downloaded a round", runs, (run) => run.download, names, fq.bytes, most);
    fq.legend(fq.by("bytes-legend"), names.shown, names.colours);
    fq.table(
      fq.by("bytes-table"), "Bytes a round by name", ["Method", "Name", "Up", "Down"],
      () => runs.flatMap((run) => names.all.filter((name) => name in run.upload || name in run.download)
        .map((name) => [run.label, name, cell(run.upload[name], fq.bytes), cell(run.download[name], fq.bytes)])),
    );
  };

  fq.drawers.time = () => {
    if (!fq.section("time", fq.runs().some((run) => total(run.timings) > 0))) return;
    const runs = fq.shown();
    const names = inOrder(fq.runs().map((run) => run.timings));
    bars("time-chart", "Time a round", runs, (run) => run.timings, names, fq.seconds, Math.max(1e-9, ...runs.map((run) => total(run.timings))));
    fq.legend(fq.by("time-legend"), names.shown.length > 1 ? names.shown : [], names.colours);
    fq.table(
      fq.by("time-table"), "Time a round by phase", ["Method", ...names.all, "total"],
      () => runs.map((run) => [run.label, ...names.all.map((name) => cell(run.timings[name], fq.seconds)), fq.seconds(total(run.timings))]),
    );
  };

  const cell = (value, unit) => (value === undefined ? "" : unit(value));
  const total = (amounts) => Object.values(amounts).reduce((a, b) => a + b, 0);

  /** The names with most bytes get a colour each, the rest is one grey. */
  function largest(each) {
    const sums = new Map();
    for (const amounts of each) for (const [name, amount] of Object.entries(amounts)) sums.set(name, Math.max(amount, sums.get(name) ?? 0));
    return named([...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a)));
  }

  const inOrder = (each) => named([...new Set(each.flatMap((amounts) => Object.keys(amounts)))]);

  function named(all) {
    const own = all.length > MOST ? all.slice(0, MOST - 1) : all;
    const colours = fq.colours(own.length);
    return own.length < all.length ? { all, own, shown: [...own, `${all.length - own.length} ${OTHERS}`], colours: [...colours, fq.GREY] } : { all, own, shown: own, colours };
  }

  function bars(id, what, runs, amounts, names, unit, most) {
    const theme = fq.theme();
    const labels = runs.map((run) => run.label);
    const element = fq.by(id), narrow = fq.width(element) < 460;
    const room = narrow ? 84 : 150, step = fq.step(most, narrow ? 3 : 6);
    const others = (run) => Object.entries(amounts(run)).filter(([name]) => !names.own.includes(name)).reduce((sum, [, value]) => sum + value, 0);
    const part = (run, k) => (k < names.own.length ? amounts(run)[names.own[k]] ?? 0 : others(run));
    const parts = runs.map((run) => `${run.label} ${unit(total(amounts(run)))}`);
    fq.draw(id, 34 + runs.length * 32, `Stacked bar chart. ${what}: ${parts.join("; ")}.`, {
      grid: { left: fq.nameWidth(labels, room) + 14, right: 64, top: 2, bottom: 26, containLabel: false },
      xAxis: fq.axis(theme, { type: "value", min: 0, max: Math.ceil(most / step - 1e-9) * step, interval: step, axisLabel: { formatter: (value) => unit(value, true) } }),
      yAxis: fq.axis(theme, { type: "category", data: labels, inverse: true, splitLine: { show: false }, axisLabel: { color: theme.ink, width: room, overflow: "truncate" } }),
      tooltip: {
        ...fq.tooltip(theme), trigger: "axis", axisPointer: { type: "shadow", z: -1, shadowStyle: { color: theme.faint, opacity: 0.35 } },
        formatter: (points) => tip(runs[points[0].dataIndex], amounts, names, unit),
      },
      series: [
        ...names.shown.map((name, k) => ({ type: "bar", name, stack: "all", barMaxWidth: 20, data: runs.map((run) => part(run, k)), itemStyle: { color: names.colours[k], borderColor: theme.paper, borderWidth: 0.75 }, emphasis: { disabled: true } })),
        { type: "bar", name: "total", stack: "all", silent: true, data: runs.map(() => 0), label: { show: true, position: "right", color: theme.soft, fontSize: 12, formatter: (params) => unit(total(amounts(runs[params.dataIndex]))) } },
      ],
    });
  }

  function tip(run, amounts, names, unit) {
    const entries = Object.entries(amounts(run)).filter(([, value]) => value > 0);
    const colour = (name) => names.colours[names.own.indexOf(name)] ?? fq.GREY;
    const rows = entries.slice(0, 14).map(([name, value]) => [colour(name), name, unit(value)]);
    if (entries.length > 14) rows.push([fq.GREY, `${entries.length - 14} more`, unit(entries.slice(14).reduce((sum, [, value]) => sum + value, 0))]);
    return fq.tip(`${run.label}: ${unit(total(amounts(run)))} a round`, rows);
  }
})();
