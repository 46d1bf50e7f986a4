// ECharts instances: made once, drawn again when a choice, the theme or the width changes.
fq.drawers = {}; // by section: each draws it, and hides it where there is nothing to draw

const PRINT_WIDTH = 660;
const instances = new Map();

/** Put an option into the chart of an element. `label` is what those hear who cannot see it. */
fq.draw = (id, height, label, option) => {
  const element = fq.by(id);
  const width = fq.width(element);
  element.style.height = `${height}px`;
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);
  let chart = instances.get(id);
  if (!chart) {
    chart = echarts.init(element, null, { renderer: "svg", width, height });
    instances.set(id, chart);
  } else chart.resize({ width, height });
  chart.setOption({ ...fq.base(), ...option }, { notMerge: true });
  element.dataset.width = width;
  return chart;
};

fq.width = (element) => (fq.state.printing ? Math.min(PRINT_WIDTH, element.classList.contains("square") ? 480 : PRINT_WIDTH) : element.clientWidth || 320);

fq.base = () => {
  const theme = fq.theme();
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { fontFamily: theme.text, color: theme.ink },
    tooltip: fq.tooltip(theme),
  };
};

fq.tooltip = (theme) => ({
  confine: true,
  transitionDuration: 0,
  backgroundColor: theme.paper,
  borderColor: theme.faint,
  borderWidth: 1,
  padding: [8, 11],
  extraCssText: "border-radius:8px;box-shadow:0 4px 18px rgb(0 0 0 / .16)",
  textStyle: { color: theme.ink, fontSize: 12 },
});

/** An axis in the page's style. */
fq.axis = (theme, more = {}) => {
  const { axisLabel = {}, nameTextStyle = {}, ...rest } = more;
  return {
    nameLocation: "middle",
    nameTextStyle: { color: theme.soft, fontSize: 12, ...nameTextStyle },
    axisLine: { show: false },
    axisTick: { show: false },
    axisLabel: { color: theme.soft, fontSize: 12, ...axisLabel },
    splitLine: { lineStyle: { color: theme.line } },
    ...rest,
  };
};

/** How much room names on the left need. */
fq.nameWidth = (names, most) => {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `12px ${fq.theme().text}`;
  return Math.ceil(Math.min(most, Math.max(...names.map((name) => context.measureText(name).width), 10))) + 2;
};

fq.drawAll = () => {
  for (const draw of Object.values(fq.drawers)) draw();
};

/** Redraw what has another width now. */
fq.follow = () => {
  let waiting = null;
  const observer = new ResizeObserver(() => {
    if (waiting || fq.state.printing) return;
    waiting = requestAnimationFrame(() => {
      waiting = null;
      const changed = [...instances.keys()].some((id) => {
        const element = fq.by(id);
        return element.clientWidth && String(element.clientWidth) !== element.dataset.width;
      });
      if (changed) fq.drawAll();
    });
  });
  observer.observe(fq.by("main"));
};

/** Show a section, or hide it and its link; whether it is shown. */
fq.section = (id, shown) => {
  fq.by(id).hidden = !shown;
  document.querySelector(`#contents a[href="#${id}"]`).parentElement.hidden = !shown;
  return shown;
};
