(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const theme = window.matchMedia("(prefers-color-scheme: dark)");
  const places = [...document.querySelectorAll("[data-figure]")];
  const chosen = (key) => Number(document.querySelector(`[data-choose="${key}"]`)?.value || 0);
  const panelOf = (key) => figures[key].panels[chosen(key)];
  // What A4 and Letter hold between margins of 2 cm: the screen's own width says nothing of paper.
  const PAPER_PX = 640;
  let printing = false;

  const draw = (place) => {
    if (typeof Plotly === "undefined") return;
    const key = place.dataset.figure;
    const panel = panelOf(key);
    const style = Plots.look(theme.matches && !printing);
    const width = printing ? PAPER_PX : place.clientWidth;
    const height = Plots.room(panel, figures[key].height, width);
    place.style.minHeight = `${height}px`;
    const shape = Plots.layout(panel, style, { height, narrow: width < 480 });
    if (printing) Object.assign(shape, { width, autosize: false });
    Plotly.react(place, Plots.traces(panel, style), shape, { displayModeBar: false, responsive: true });
    if (!place.dataset.drawn) performance.mark(`plot-${key}`);
    place.dataset.drawn = "yes";
  };

  const fill = (table, rows) => {
    const line = (cells, tag) => {
      const row = document.createElement("tr");
      for (const text of cells) row.appendChild(document.createElement(tag)).textContent = text;
      return row;
    };
    table.tHead.replaceChildren(line(rows[0], "th"));
    table.tBodies[0].replaceChildren(...rows.slice(1).map((cells) => line(cells, "td")));
  };

  const save = (key) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", panelOf(key).csv], { type: "text/csv;charset=utf-8" }));
    link.download = `concbench-${key}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  for (const button of document.querySelectorAll("[data-csv]")) {
    button.addEventListener("click", () => save(button.dataset.csv));
  }
  for (const box of document.querySelectorAll("[data-choose]")) {
    box.addEventListener("change", () => {
      const key = box.dataset.choose;
      const panel = panelOf(key);
      const place = document.getElementById(`plot-${key}`);
      place.setAttribute("aria-label", panel.alternative);
      document.getElementById(`note-${key}`).textContent = panel.note;
      document.getElementById(`shown-${key}`).textContent = panel.label;
      fill(document.getElementById(`table-${key}`), panel.table);
      draw(place);
    });
  }

  // Only what is near the screen is drawn at first: a page of many plots opens at once.
  const drawn = () => places.filter((place) => place.dataset.drawn);
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "500px" });
  places.forEach((place, index) => (index ? watcher.observe(place) : draw(place)));

  theme.addEventListener("change", () => drawn().forEach(draw));
  window.addEventListener("beforeprint", () => {
    printing = true;
    for (const part of document.querySelectorAll("details.series")) part.open = true;
    places.forEach(draw);
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    // A plot keeps a width that it was given: only a new one fits the screen again.
    for (const place of drawn()) { Plotly.purge(place); draw(place); }
  });
})();
