// Figures are drawn one by one once the page is painted, so that its words never wait for them.
const later = [...document.querySelectorAll("script.later")];
function draw() {
  const one = later.shift(), script = document.createElement("script");
  script.textContent = one.textContent;
  one.replaceWith(script);
  if (!later.length) document.dispatchEvent(new Event("drawn"));
}
function drawNext() { if (later.length) { draw(); setTimeout(drawNext); } }
setTimeout(drawNext, 100);
// On paper figures are as wide as the paper, not as the screen.
function fit(isPaper) {
  document.body.classList.toggle("paper", isPaper);
  for (const one of document.querySelectorAll(".js-plotly-plot"))
    Plotly.relayout(one, isPaper ? { width: one.clientWidth } : { width: null, autosize: true });
}
addEventListener("beforeprint", () => { while (later.length) draw(); fit(true); });
addEventListener("afterprint", () => fit(false));
