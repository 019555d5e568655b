(async () => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const place = document.getElementById("plot");
  const images = {};
  const style = Plots.look(false);
  for (const [key, figure] of Object.entries(figures)) {
    for (const [index, panel] of figure.panels.entries()) {
      const width = figure.wide ? 1200 : 800;
      const height = Plots.room(panel, figure.height, width) + 60;
      const title = panel.label ? `${figure.title} · ${figure.words[index]}` : figure.title;
      const shape = Plots.layout(panel, style, { height, narrow: false });
      Object.assign(shape, {
        width, paper_bgcolor: "#ffffff", title: { text: title, x: 0.01, xanchor: "left", y: 0.985, yanchor: "top", font: { size: 15 } },
        margin: { ...shape.margin, t: 70 },
      });
      await Plotly.newPlot(place, Plots.traces(panel, style), shape, { staticPlot: true });
      const name = figure.panels.length > 1 ? `${key}-${index + 1}` : key;
      images[name] = await Plotly.toImage(place, { format: "png", width, height, scale: 2 });
      Plotly.purge(place);
    }
  }
  document.body.replaceChildren();
  const out = document.body.appendChild(document.createElement("pre"));
  out.id = "images";
  out.textContent = JSON.stringify(images);
})();
