// Sliders of a page: cost of a load, break-even between options, and headroom, from the data beside
// them. The formulas are those of calculator.py, whose table the page starts with.
"use strict";
const SLIDERS = [
  ["load_ratio", "load", -2, 2, 0.02, true],
  ["utilisation_fraction", "utilisation at most", 0.05, 1, 0.01, false],
  ["efficiency_ratio", "rate over the predicted", 0.25, 1.5, 0.01, false],
  ["price_ratio", "price", 0.1, 3, 0.01, false],
];
const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

function amount(value) {
  const [scale, sign] = PREFIXES.find(([one]) => value >= one) || [1, ""];
  return Number((value / scale).toPrecision(3)) + (sign && " " + sign);
}

function costs(data, option, load, settings) {
  const capacity = option.rate_per_s * settings.efficiency_ratio * settings.utilisation_fraction;
  const units = Math.max(1, Math.ceil(load / capacity - 1e-9));
  const hourly = units * option.usd_per_hour * settings.price_ratio;
  const monthly = option.fixed_usd_per_month + hourly * data.hours_per_month;
  const made = load * 3600 * data.hours_per_month;
  return { units: units * option.devices, monthly, per_1000: 1000 * monthly / made, headroom: units * capacity / load - 1 };
}

function cheapest(data, load, settings) {
  const all = data.options.map((option) => [costs(data, option, load, settings).monthly, option.name]);
  return all.reduce((best, one) => (one[0] < best[0] ? one : best));
}

function fill(table, rows) {
  const body = table.tBodies[0];
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const made = row.insertCell();
      made.textContent = typeof cell === "string" ? cell : cell[1];
      if (typeof cell !== "string") made.dataset.value = cell[0];
    }
    return row;
  }));
}

function money(value) { return "$" + (value >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3))); }

function redraw(name, data, settings) {
  const load = data.load_per_s * settings.load_ratio;
  const rows = data.options.map((option) => {
    const found = costs(data, option, load, settings);
    return [option.name, [found.units, found.units.toLocaleString("en")], [found.monthly, money(found.monthly)],
      [found.per_1000, money(found.per_1000)], [found.headroom, Math.round(100 * found.headroom) + " %"], ""];
  });
  const loads = data.loads_per_s.map((one) => one * settings.load_ratio);
  const winners = loads.map((one) => cheapest(data, one, settings)[1]);
  const now = cheapest(data, load, settings)[1];
  rows.forEach((row) => {
    const won = loads.filter((_, place) => winners[place] === row[0]);
    row[5] = won.length ? amount(won[0]) + " to " + amount(won[won.length - 1]) : "nowhere";
    if (row[0] === now) row[0] += " (cheapest)";
  });
  fill(document.getElementById(name), rows);
  const figure = document.getElementById("figure-" + name);
  if (!figure || !figure.data) return; // not drawn yet
  const lines = data.options.map((option) => loads.map((one) => costs(data, option, one, settings).monthly));
  const places = data.options.map((_, place) => place);
  window.Plotly.restyle(figure, { x: places.map(() => loads), y: lines }, places);
  window.Plotly.restyle(figure, { x: [[load, load]], y: [[Math.min(...lines.flat()), Math.max(...lines.flat())]] }, [places.length]);
}

document.querySelectorAll("[data-calculator]").forEach((panel) => {
  const name = panel.dataset.calculator;
  const data = JSON.parse(document.getElementById(name + "-data").textContent);
  const settings = { load_ratio: 1, utilisation_fraction: data.utilisation_fraction, efficiency_ratio: 1, price_ratio: 1 };
  SLIDERS.forEach(([key, words, least, most, step, isLog]) => {
    const label = document.createElement("label"), input = document.createElement("input"), shown = document.createElement("output");
    Object.assign(input, { type: "range", min: least, max: most, step, name: key });
    input.value = isLog ? Math.log10(settings[key]) : settings[key];
    const say = () => {
      const value = settings[key];
      shown.textContent = isLog ? amount(data.load_per_s * value) + " " + data.unit + "/s" : Math.round(100 * value) + " %";
    };
    input.addEventListener("input", () => {
      settings[key] = isLog ? 10 ** Number(input.value) : Number(input.value);
      say();
      redraw(name, data, settings);
    });
    say();
    label.append(words, input, shown);
    panel.append(label);
  });
  redraw(name, data, settings);
  document.addEventListener("drawn", () => redraw(name, data, settings));
});
