// The controls, the theme, the print-out, and the first drawing.
(() => {
  const root = document.documentElement;

  function chips() {
    const runs = fq.runs();
    fq.by("methods").replaceChildren(...runs.map((run) => {
      const on = !fq.state.hidden.has(run.label);
      const chip = fq.make("button", { type: "button", class: "chip", "aria-pressed": String(on), "data-label": run.label }, fq.lineSwatch(fq.look(run.label)), fq.make("span", {}, run.label));
      chip.addEventListener("click", () => {
        fq.state.hidden[fq.state.hidden.has(run.label) ? "delete" : "add"](run.label);
        chip.setAttribute("aria-pressed", String(!fq.state.hidden.has(run.label)));
        fq.drawAll();
      });
      return chip;
    }));
    fq.by("methods-field").hidden = runs.length < 2;
  }

  function all(id, shown) {
    fq.by(id).addEventListener("click", () => {
      fq.state.hidden = new Set(shown ? [] : fq.data.labels);
      chips();
      fq.drawAll();
    });
  }

  function settingNames() {
    const several = fq.data.settings.length > 1;
    for (const place of document.querySelectorAll(".setting-name")) place.textContent = several ? fq.state.setting : "";
  }

  /** Do what a control asks for, then draw that section, or all of them. */
  function onChange(id, section, act) {
    // A slider tells while it moves, the others when they have changed.
    fq.by(id).addEventListener(fq.by(id).type === "range" ? "input" : "change", (event) => {
      act(event.target.type === "checkbox" ? event.target.checked : event.target.value);
      (fq.drawers[section] ?? fq.drawAll)();
    });
  }

  function theme() {
    const button = fq.by("theme");
    const say = () => button.setAttribute("aria-pressed", String(fq.dark()));
    const redraw = () => { say(); chips(); fq.drawAll(); };
    button.hidden = false;
    button.addEventListener("click", () => { root.dataset.theme = fq.dark() ? "light" : "dark"; redraw(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    say();
  }

  function print() {
    let closed = [];
    addEventListener("beforeprint", () => {
      fq.state.printing = true;
      closed = [...document.querySelectorAll("details:not([open])")];
      for (const one of closed) one.open = true;
      fq.drawAll();
    });
    addEventListener("afterprint", () => {
      fq.state.printing = false;
      for (const one of closed) one.open = false;
      fq.drawAll();
    });
  }

  /** Mark the section one is in. */
  function contents() {
    const links = new Map([...document.querySelectorAll("#contents a")].map((link) => [link.hash.slice(1), link]));
    links.get("results").setAttribute("aria-current", "true");
    const observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) if (isIntersecting) {
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(target.id)?.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-20% 0px -70% 0px" });
    for (const id of links.keys()) observer.observe(fq.by(id));
  }

  for (const code of document.querySelectorAll(".code code")) fq.command(code);
  if (!fq.data.runs.length) {
    for (const id of ["convergence", "similarity", "clients", "views", "bytes", "time", "partition"]) fq.section(id, false);
    fq.section("settings", fq.by("settings").querySelector(".facts") !== null);
    theme();
    contents();
    return;
  }
  const select = fq.by("setting");
  fq.choices(select, fq.data.settings.map((setting) => [setting, setting]), fq.state.setting);
  fq.by("setting-field").hidden = fq.data.settings.length < 2;
  onChange("setting", "all", (value) => { fq.state.setting = value; fq.state.similarity.place = null; chips(); settingNames(); });
  all("methods-all", true);
  all("methods-none", false);
  onChange("zoom", "convergence", (value) => { fq.state.zoom = value; });
  onChange("clients-seed", "clients", (value) => { fq.state.clientsSeed = value; });
  onChange("partition-seed", "partition", (value) => { fq.state.partitionSeed = value; });
  onChange("views-run", "views", (value) => { fq.state.views.run = value; });
  onChange("views-seed", "views", (value) => { fq.state.views.seed = value; });
  onChange("similarity-run", "similarity", (value) => { fq.state.similarity.run = value; fq.state.similarity.place = null; });
  onChange("similarity-seed", "similarity", (value) => { fq.state.similarity.seed = value; fq.state.similarity.place = null; });
  onChange("similarity-factor", "similarity", (value) => { fq.state.similarity.factor = value; });
  onChange("similarity-order", "similarity", (value) => { fq.state.similarity.order = value; });
  onChange("similarity-scale", "similarity", (value) => { fq.state.similarity.scale = value; });
  onChange("similarity-round", "similarity", (value) => { fq.state.similarity.place = Number(value); });
  fq.by("controls").hidden = fq.data.settings.length < 2 && fq.runs().length < 2;
  chips();
  settingNames();
  theme();
  print();
  contents();
  fq.drawAll();
  fq.follow();
})();
