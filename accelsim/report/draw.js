// Scripts of figures, plotly's own first, are packed: JSON, zlib, base64. They run one by one once the
// page is painted, so that its words never wait for them.
const packed = document.querySelector("script.packed");
let scripts = [];
async function unpack() {
  const bytes = Uint8Array.from(atob(packed.textContent), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  scripts = await new Response(stream).json();
}
function draw() {
  const script = document.createElement("script");
  script.textContent = scripts.shift();
  document.body.append(script);
  if (scripts.length) return;
  packed.remove();
  document.dispatchEvent(new Event("drawn"));
}
function drawNext() { if (scripts.length) { draw(); setTimeout(drawNext); } }
setTimeout(() => unpack().then(drawNext), 100);
// On paper figures are as wide as the paper, not as the screen.
function fit(isPaper) {
  document.body.classList.toggle("paper", isPaper);
  for (const one of document.querySelectorAll(".js-plotly-plot"))
    Plotly.relayout(one, isPaper ? { width: one.clientWidth } : { width: null, autosize: true });
}
addEventListener("beforeprint", () => { while (scripts.length) draw(); fit(true); });
addEventListener("afterprint", () => fit(false));
