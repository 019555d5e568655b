"use strict";
// How every plot looks, by theme. Data comes as colour indices and roles, never as colours.
const Plots = (() => {
  // After Okabe and Ito, chosen by theme: contrast against the paper, and apart for colour-blind eyes (tested).
  const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#663311", "#3A97CF", "#000000"];
  const DARK = ["#56B4E9", "#E69F00", "#2BC49A", "#E3A0C5", "#F0E442", "#FF8A4C", "#FFFFFF"];

  const look = (dark) => dark
    ? { palette: DARK, ink: "#d3d9e0", rule: "#2f3741", quiet: "#8f9aa6", paper: "#14171b", panel: "#1c2127",
        roles: { window: "rgba(86,180,233,.16)", crossover: "rgba(240,228,66,.16)" } }
    : { palette: LIGHT, ink: "#30363d", rule: "#e3e7ec", quiet: "#59636e", paper: "#ffffff", panel: "#ffffff",
        roles: { window: "rgba(0,114,178,.10)", crossover: "rgba(230,159,0,.20)" } };

  const traces = (panel, { palette, quiet }) => panel.data.map((trace) => {
    const index = trace.meta.colour;
    const colour = index < 0 ? quiet : palette[index % palette.length];
    if (trace.type === "heatmap") return { ...trace };
    if (trace.type === "bar") {
      const pattern = trace.meta.pattern ? { shape: "/", size: 5, solidity: 0.45 } : { shape: "" };
      return { ...trace, marker: { color: colour, pattern, line: { width: 0 } } };
    }
    const drawn = { ...trace, line: { ...trace.line, color: colour } };
    if (trace.marker) drawn.marker = { ...trace.marker, color: colour };
    if (trace.error_y) drawn.error_y = { thickness: 1.5, width: 4, ...trace.error_y, color: colour };
    return drawn;
  });

  const shapes = (panel, { roles, quiet }) => (panel.layout.shapes || []).map(({ role, ...shape }) => (
    shape.type === "rect"
      ? { layer: "below", ...shape, fillcolor: roles[role] }
      : { layer: "below", ...shape, line: { width: 1.5, dash: "dot", ...shape.line, color: quiet } }
  ));

  const layout = (panel, style, { height, narrow }) => {
    const { ink, rule, quiet } = style;
    const axis = { gridcolor: rule, linecolor: rule, zerolinecolor: rule, automargin: true, fixedrange: true, title: {} };
    const shape = {
      // A lone line is named too: nothing else says which of several it is.
      hovermode: "x unified", showlegend: true, ...panel.layout, height,
      font: { family: "system-ui, Roboto, Liberation Sans, sans-serif", size: 12, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 48, r: 12, t: 10, b: 40 },
      hoverlabel: { namelength: -1, bgcolor: style.panel, bordercolor: rule, font: { color: ink } },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: narrow ? 11 : 12 } },
      shapes: shapes(panel, style),
      annotations: (panel.layout.annotations || []).map((note) => ({ ...note, font: { size: 11, color: quiet } })),
    };
    for (const name of ["xaxis", "yaxis", "yaxis2", "yaxis3"]) {
      if (name === "xaxis" || name === "yaxis" || panel.layout[name]) shape[name] = { ...axis, ...panel.layout[name] };
    }
    return shape;
  };

  // Legends above the plot take room of their own: a line for every few names.
  const room = (panel, height, width) => {
    if (panel.layout.showlegend === false) return height;
    const shown = panel.data.filter((trace) => trace.showlegend !== false);
    const letters = shown.reduce((sum, trace) => sum + Math.max(9, trace.name.length) + 6, 0);
    return height + 19 * Math.min(14, Math.ceil((letters * 7) / Math.max(240, width - 60)));
  };

  return { look, traces, layout, room };
})();
