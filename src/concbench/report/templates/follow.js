"use strict";
// Every text of the study goes in as text (textContent), never as markup.
(() => {
  const EVERY_MS = 2000;
  const SVG = "http://www.w3.org/2000/svg";
  const at = (id) => document.getElementById(id);
  const wanted = new URLSearchParams(location.search).get("study");
  const query = wanted === null ? "" : "?study=" + encodeURIComponent(wanted);
  let tag = "";

  const node = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const drawn = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const rate = (value) => value === null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const span = (seconds) => seconds < 90 ? `${Math.round(seconds)} s`
    : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;

  const figure = (text, spread) => {
    const cell = node("td", text);
    if (spread) cell.append(" ", node("span", spread, "spread"));
    return cell;
  };
  const rows = (id, made) => at(id).tBodies[0].replaceChildren(...made);
  const row = (cells) => {
    const line = node("tr");
    line.append(...cells.map((cell) => {
      if (cell instanceof Node) return cell;
      const made = node("td");
      made.append(node("bdi", cell));
      return made;
    }));
    return line;
  };

  // Six colours, and for each six series another shape and dash.
  const SHAPES = ["M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z", "M-3,-3h6v6h-6z", "M0,-4l4,7h-8z", "M0,-4l4,4l-4,4l-4,-4z", "M0,4l4,-7h-8z"];
  const turn = (index) => Math.floor(index / 6) % SHAPES.length;
  const styled = (index) => `s${index % 6} d${turn(index)}`;
  const dot = (index, x, y, hollow) => drawn("path", { class: hollow ? "dot hollow" : "dot", d: SHAPES[turn(index)], transform: `translate(${x},${y})` });

  const plot = (cells) => {
    const known = cells.filter((cell) => cell.point !== null);
    const names = [...new Set(cells.map((cell) => cell.series))];
    const levels = [...new Set(cells.map((cell) => cell.level))].sort((a, b) => a - b);
    const top = Math.max(1e-9, ...known.flatMap((cell) => [cell.point, ...cell.points])) * 1.05;
    const x = (level) => levels.length < 2 ? 380 : 70 + 620 * levels.indexOf(level) / (levels.length - 1);
    const y = (value) => 260 - 235 * value / top;
    const load = cells.some((cell) => cell.label.startsWith("N")) ? "requests at once (N)" : "requests asked for a second";
    const parts = [drawn("text", { x: 8, y: 14 }, "tok/s"), drawn("text", { x: 380, y: 297, "text-anchor": "middle" }, load)];
    const power = 10 ** Math.floor(Math.log10(top / 4));
    const step = power * [1, 2, 5, 10].find((factor) => power * factor * 5 >= top);
    for (let value = 0; value <= top; value += step) {
      parts.push(drawn("line", { class: "axis", x1: 60, x2: 700, y1: y(value), y2: y(value) }));
      parts.push(drawn("text", { x: 54, y: y(value) + 4, "text-anchor": "end" }, rate(value)));
    }
    for (const level of levels) {
      parts.push(drawn("text", { x: x(level), y: 278, "text-anchor": "middle" }, String(level)));
    }
    for (const cell of cells.filter((one) => one.point === null)) {
      const mark = drawn("text", { class: "gone", x: x(cell.level), y: 258, "text-anchor": "middle" }, "✗");
      mark.append(drawn("title", {}, `${cell.series} ${cell.label}: no round counts`));
      parts.push(mark);
    }
    names.forEach((name, index) => {
      const own = known.filter((cell) => cell.series === name).sort((a, b) => a.level - b.level);
      const group = drawn("g", { class: styled(index) });
      group.append(drawn("polyline", { class: "line", points: own.map((cell) => `${x(cell.level)},${y(cell.point)}`).join(" ") }));
      for (const cell of own) {
        for (const value of cell.points) {
          group.append(dot(index, x(cell.level), y(value), !cell.steady_known));
        }
      }
      parts.push(group);
    });
    at("plot").replaceChildren(...parts);
    at("legend").replaceChildren(...names.map((name, index) => {
      const line = node("span", undefined, styled(index));
      const mark = drawn("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" });
      mark.append(drawn("line", { class: "line", x1: 0, x2: 36, y1: 6, y2: 6 }), dot(index, 18, 6, false));
      line.append(mark, node("bdi", name));
      return line;
    }));
  };

  const progress = (state) => {
    const of = state.planned === null ? `${state.done} rounds` : `${state.done} of ${state.planned} rounds`;
    const gone = state.retracted ? ` · ${state.retracted} retracted` : "";
    const unread = state.unread ? ` · ${state.unread} still to be read` : "";
    const left = state.state === "running" && state.left_s !== null ? ` · about ${span(state.left_s)} left` : "";
    at("progress").textContent = `${state.state} · ${of}${gone}${unread}${left} · as of ${state.now_utc}`;
    at("bar").hidden = state.planned === null;
    if (state.planned !== null) {
      at("bar").max = Math.max(1, state.planned);
      at("bar").value = Math.min(state.done, state.planned);
    }
  };

  const running = (now) => {
    at("running").hidden = at("signs").hidden = !now;
    if (!now) return;
    const of = now.asked === null ? "" : ` of ${now.asked}`;
    const parts = [`${now.phase} for ${span(now.elapsed_s)}`, `${now.in_flight} in flight`, `${now.ended}${of} ended`];
    if (now.running !== null) parts.push(`${now.running} running on the server${now.waiting ? ` + ${now.waiting} waiting` : ""}`);
    if (now.client_tok_per_s !== null) parts.push(`client ${rate(now.client_tok_per_s)} tok/s`);
    if (now.server_tok_per_s !== null) parts.push(`server ${rate(now.server_tok_per_s)} tok/s`);
    if (now.half_width !== null) parts.push(`± ${(100 * now.half_width).toPrecision(2)} %`);
    if (now.left_s !== null) parts.push(`${now.asked === null ? "at most" : "about"} ${span(now.left_s)} left`);
    at("running").replaceChildren(node("bdi", now.cell, "code"), " ", parts.join(" · "));
    at("signs").replaceChildren(...now.signs.map((text) => {
      const line = node("li", undefined, "warning");
      line.append(node("bdi", `${text} (so far)`));
      return line;
    }));
  };

  const judged = (state) => {
    const found = state.judged;
    at("sentence").textContent = found && found.sentence ? found.sentence
      : state.state === "running" ? "Measuring; no verdict yet" : "Judging what is on record";
    const notes = [];
    if (found) notes.push(`Judged over ${found.rounds} measured rounds.`);
    if (state.judging) notes.push("Being judged again.");
    if (state.judge_error) notes.push(`The last judgement failed: ${state.judge_error}`);
    at("judged").textContent = notes.join(" ");
    at("report").hidden = !found;
    at("report").href = "report.html" + query;
    at("verdicts").replaceChildren(...(found ? found.verdicts : []).map((text) => {
      const line = node("li");
      line.append(node("bdi", text));
      return line;
    }));
    const lines = found ? found.doubts : [];
    at("doubts").replaceChildren(...(lines.length ? lines.map((doubt) => {
      const line = node("li", undefined, doubt.severity);
      line.append(node("span", `${doubt.severity} ${doubt.code}`, "code"), " ", node("bdi", doubt.message), " ", node("bdi", doubt.cell, "quiet"));
      return line;
    }) : [node("li", found ? "none so far" : "not judged yet")]));
  };

  const show = (state) => {
    document.title = `${state.state}: ${state.name}`;
    at("kicker").textContent = [state.command, state.name, state.began_utc, ...state.lanes].join(" · ");
    at("corrections").hidden = !state.corrections.length;
    at("corrections").replaceChildren(...state.corrections.map((text) => {
      const line = node("li");
      line.append(node("bdi", text));
      return line;
    }));
    progress(state);
    running(state.running);
    judged(state);
    plot(state.cells);
    rows("cells", state.cells.map((cell) => row([
      cell.series, cell.label, String(cell.rounds), `${cell.ok}/${cell.sent}`,
      figure(cell.steady, cell.steady_spread), figure(cell.batch, cell.batch_spread), cell.outcome,
    ])));
    rows("rounds", state.last_rounds.map((one) => row([
      one.round, one.retracted ? "retracted" : one.phase, `${one.ok}/${one.sent}`, one.took_s.toFixed(1),
      rate(one.steady_tok_per_s), rate(one.batch_tok_per_s), one.outcome,
    ])));
    at("events").replaceChildren(...(state.events.length ? state.events : ["none"]).map((text) => {
      const line = node("li");
      line.append(node("bdi", text));
      return line;
    }));
  };

  const choices = (state) => {
    at("studies").hidden = !state.studies.length;
    at("studies").replaceChildren(...state.studies.map((name) => {
      const link = node("a");
      link.append(node("bdi", name));
      link.href = "?study=" + encodeURIComponent(name);
      if (name === state.study) link.setAttribute("aria-current", "page");
      return link;
    }));
  };

  const lost = (text) => {
    at("lost").hidden = !text;
    at("lost").textContent = text;
  };

  const look = async () => {
    let wait = EVERY_MS;
    try {
      const answer = await fetch("state.json" + query, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag") || "";
        const state = await answer.json();
        choices(state);
        if (state.unread) wait = 50;
        if (state.state) show(state);
        else at("sentence").textContent = "Choose a study";
        lost("");
      } else if (answer.status === 304) {
        lost("");
      } else {
        lost(await answer.text());
      }
    } catch {
      lost("concbench watch no longer answers: it was ended, or this page is of an earlier run.");
    }
    setTimeout(look, wait);
  };
  look();
})();
