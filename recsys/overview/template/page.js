// Draws every chart in the page's colours, and again when the reader's system turns light or dark.
"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const views = new Map();

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const [text, soft, line] = ["--text", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
    const words = { labelColor: text, titleColor: soft, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
    return {
      background: null,
      font: getComputedStyle(document.body).fontFamily,
      view: { stroke: null },
      axis: { ...words, gridColor: line, domainColor: line, tickColor: line },
      legend: { ...words, symbolOpacity: 1 },
      title: { color: text },
    };
  }

  async function draw(name, dark) {
    const place = document.getElementById(`chart-${name}`);
    try {
      views.get(name)?.finalize();
      const tooltip = { theme: dark ? "dark" : "light" };
      const options = { mode: "vega-lite", renderer: "svg", actions: false, config: colours(), tooltip };
      views.set(name, await vegaEmbed(place, specs[name], options));
      place.dataset.state = "drawn";
    } catch (error) {
      place.dataset.state = "failed";
      place.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(`chart ${name}:`, error);
    }
  }

  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const drawAll = () => Promise.all(Object.keys(specs).map((name) => draw(name, scheme.matches)));
  scheme.addEventListener("change", drawAll);
  drawAll().then(() => { document.documentElement.dataset.ready = "true"; });
})();
