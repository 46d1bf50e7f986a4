"use strict";
// The data, what is chosen, and what everything else asks about them.
const fq = { data: JSON.parse(document.getElementById("page-data").textContent) };

fq.state = {
  setting: fq.data.settings[0],
  hidden: new Set(),
  zoom: false,
  similarity: { run: null, seed: null, factor: "mean", place: null, order: "number", scale: "fixed" },
  clientsSeed: "all",
  partitionSeed: null,
  views: { run: null, seed: null },
  printing: false,
};

/** The runs of the chosen setting. */
fq.runs = () => fq.data.runs.filter((run) => run.setting === fq.state.setting);

/** Those of them that are not switched off. */
fq.shown = () => fq.runs().filter((run) => !fq.state.hidden.has(run.label));

fq.dark = () => {
  if (fq.state.printing) return false;
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

/** The page's own colours as they are now. */
fq.theme = () => {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "soft", "faint", "line", "paper", "wash", "diagonal", "text"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
};

const BLACK = "#000000";
fq.onPaper = (colour) => (colour === BLACK && fq.dark() ? "#E8EAED" : colour);

/** Colour and dash of a label: the same in every chart and setting; dashes change when colours begin again. */
fq.look = (label) => {
  const lines = fq.data.palette.slice(0, 7);
  const place = fq.data.labels.indexOf(label);
  const dashes = ["solid", [9, 3], [2, 2.5], [9, 3, 2, 3]];
  return { colour: fq.onPaper(lines[place % 7]), dash: dashes[Math.floor(place / 7) % dashes.length] };
};

/** A colour for each of up to 15 things: the palette, black last, then tints. */
fq.colours = (count) => {
  const hues = fq.data.palette.filter((colour) => colour !== BLACK);
  const tint = (hue) => "#" + [1, 3, 5].map((i) => {
    const channel = parseInt(hue.slice(i, i + 2), 16);
    return Math.round(255 - 0.45 * (255 - channel)).toString(16).padStart(2, "0");
  }).join("");
  const all = [...hues, fq.onPaper(BLACK), ...hues.map(tint)];
  return Array.from({ length: count }, (_, i) => all[i % all.length]);
};
fq.GREY = "#8C8C8C";

fq.fixed = (value, digits = 2) => (value === null || value === undefined || Number.isNaN(value) ? "–" : value.toFixed(digits));

/** Bytes for people; `short` drops zeros at the end, as an axis does. */
fq.bytes = (count, short = false) => {
  if (!count) return "0 B";
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(count) / 3)));
  const value = count / 1000 ** power;
  return `${value >= 100 || power === 0 ? value.toFixed(0) : short ? Number(value.toPrecision(3)) : value.toPrecision(3)} ${units[power]}`;
};

fq.seconds = (time) => {
  if (!time) return "0 ms";
  if (time < 1) return `${Number((time * 1000).toPrecision(3))} ms`;
  return time < 120 ? `${Number(time.toPrecision(3))} s` : `${(time / 60).toFixed(1)} min`;
};

/** The first of 1, 2 or 5 times a power of ten that parts `most` into at most so many steps. */
fq.step = (most, steps) => {
  const power = 10 ** Math.floor(Math.log10(most / steps));
  return [1, 2, 5, 10].map((size) => size * power).find((size) => most / size <= steps + 1e-9);
};

fq.mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);

/** The value below which a share of the sorted values lies. */
fq.quantile = (sorted, share) => {
  const at = (sorted.length - 1) * share, low = Math.floor(at), high = Math.ceil(at);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
};

/** The position of the round with the best validation among those with a test value, or null. */
fq.best = (curve) => curve.best;

/** A client on an axis: its name where it has one, else its number. */
fq.clientName = (seed, number) => seed.names?.[number] ?? String(number);

/** A client in a sentence. */
fq.clientTitle = (seed, number) => seed.names?.[number] ?? `client ${number}`;
