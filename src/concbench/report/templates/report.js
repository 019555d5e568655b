(() => {
  "use strict";
  // Okabe and Ito's colours, chosen by theme for contrast; the last entry of each is for reference lines.
  const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
  const DARK = ["#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#FFFFFF"];
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const theme = window.matchMedia("(prefers-color-scheme: dark)");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");

  const look = (printing) => {
    const dark = theme.matches && !printing;
    return dark
      ? { palette: DARK, ink: "#c9d1d9", rule: "#363e48", quiet: "#7d8894" }
      : { palette: LIGHT, ink: "#30363d", rule: "#dfe3e8", quiet: "#8c959f" };
  };

  const traces = (figure, { palette, quiet }) => figure.data.map((trace) => {
    const index = trace.meta.colour;
    const colour = index < 0 ? quiet : palette[index % palette.length];
    const drawn = { ...trace, line: { ...trace.line, color: colour } };
    if (trace.marker) drawn.marker = { ...trace.marker, color: colour };
    if (trace.error_y) drawn.error_y = { ...trace.error_y, color: colour };
    return drawn;
  });

  const layout = (figure, { ink, rule }) => {
    const axis = { gridcolor: rule, linecolor: rule, zerolinecolor: rule, automargin: true, fixedrange: true };
    return {
      font: { family: "system-ui, Roboto, Liberation Sans, sans-serif", size: 12, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 50, r: 12, t: 12, b: 40 }, hovermode: "x unified",
      hoverlabel: { namelength: -1 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, showlegend: true,
      xaxis: { ...axis, ...figure.layout.xaxis }, yaxis: { ...axis, ...figure.layout.yaxis },
    };
  };

  const draw = (printing = false) => {
    if (typeof Plotly === "undefined") return;
    for (const place of document.querySelectorAll("[data-figure]")) {
      const figure = figures[place.dataset.figure];
      const style = look(printing);
      const shape = layout(figure, style);
      place.style.height = `${Math.min(640, 300 + 12 * figure.data.length)}px`;
      shape.hoverlabel.bgcolor = getComputedStyle(document.body).backgroundColor;
      if (still.matches) shape.transition = { duration: 0 };
      Plotly.react(place, traces(figure, style), shape, { displayModeBar: false, responsive: true });
    }
  };

  const save = (key) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", figures[key].csv], { type: "text/csv;charset=utf-8" }));
    link.download = `concbench-${key}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  for (const button of document.querySelectorAll("[data-csv]")) {
    button.addEventListener("click", () => save(button.dataset.csv));
  }
  theme.addEventListener("change", () => draw());
  window.addEventListener("beforeprint", () => draw(true));
  window.addEventListener("afterprint", () => draw());
  draw();
})();
