// Elements made from text, never from markup: labels and settings are somebody else's words.
fq.by = (id) => document.getElementById(id);

fq.make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

fq.swatch = (colour) => fq.make("span", { class: "swatch", style: { background: colour }, "aria-hidden": "true" });

/** A short piece of a line as it is drawn in the charts. */
fq.lineSwatch = ({ colour, dash }) => {
  const name = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(name, "svg");
  const line = document.createElementNS(name, "line");
  for (const [key, value] of Object.entries({ width: 22, height: 10, viewBox: "0 0 22 10", "aria-hidden": "true" })) svg.setAttribute(key, value);
  for (const [key, value] of Object.entries({ x1: 1, x2: 21, y1: 5, y2: 5, stroke: colour, "stroke-width": 3, "stroke-linecap": "butt", "stroke-dasharray": dash === "solid" ? "none" : dash.join(" ") })) line.setAttribute(key, value);
  svg.append(line);
  return svg;
};

/** A table into a container, now or when someone unfolds it; `rows` is called then. The first column names the rows. */
fq.table = (container, name, headers, rows) => {
  const folded = container.closest("details");
  const fill = () => container.replaceChildren(fq.tableElement(name, headers, rows(), folded !== null));
  if (!folded || folded.open) fill();
  else {
    container.replaceChildren();
    folded.ontoggle = () => { if (folded.open) fill(); };
  }
};

fq.tableElement = (name, headers, rows, tall) => {
  const cell = (value, place) =>
    place === 0 ? fq.make("th", { scope: "row" }, String(value)) : fq.make("td", { class: "number" }, String(value));
  const table = fq.make(
    "table", { "aria-label": name },
    fq.make("thead", {}, fq.make("tr", {}, ...headers.map((text, i) => fq.make("th", { scope: "col", class: i ? "number" : false }, String(text))))),
    fq.make("tbody", {}, ...rows.map((row) => fq.make("tr", {}, ...row.map(cell)))),
  );
  return fq.make("div", { class: tall ? "scroll tall" : "scroll", role: "region", "aria-label": name, tabindex: "0" }, table);
};

/** Fill a select with [value, text] pairs and keep the choice where it is still there; what is chosen now. */
fq.choices = (select, pairs, chosen) => {
  select.replaceChildren(...pairs.map(([value, text]) => fq.make("option", { value }, text)));
  const values = pairs.map(([value]) => String(value));
  select.value = values.includes(String(chosen)) ? String(chosen) : values[0] ?? "";
  return select.value;
};

fq.legend = (list, names, colours) =>
  list.replaceChildren(...names.map((name, i) => fq.make("li", {}, fq.swatch(colours[i]), name)));

/** Let a command break before its options only; its text stays the same. */
fq.command = (code) => {
  const words = code.textContent.split(/(?<= )(?=--)/);
  code.replaceChildren(...words.map((word) => fq.make("span", {}, word)));
  return code;
};

/** What a chart's tooltip shows: a title, and rows of cells, the first of which may have a colour. */
fq.tip = (title, rows = []) => {
  const body = rows.map(([colour, ...cells]) =>
    fq.make("tr", {}, ...cells.map((text, i) => fq.make("td", {}, i === 0 && colour ? fq.swatch(colour) : "", text))));
  return fq.make("div", { class: "tip" }, fq.make("b", {}, title), rows.length ? fq.make("table", {}, ...body) : null);
};
