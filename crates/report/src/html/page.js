"use strict";
// Search, filters, the keyboard and focus. The page reads without any of it.
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const FEW = 4;

  const findings = all("article.finding").map((element) => ({
    element,
    details: element.querySelector("details"),
    summary: element.querySelector("summary"),
    ranks: element.dataset.ranks.split(" "),
    text: null,
  }));
  const figures = all("figure.timeline");
  const timelines = byId("timelines");

  // Findings

  const field = (id) => byId(id)?.value ?? "";
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

  function matches(finding, wanted) {
    const { rule, level, state } = finding.element.dataset;
    if (wanted.rule && rule !== wanted.rule) return false;
    if (wanted.level && level !== wanted.level) return false;
    if (wanted.rank && !finding.ranks.includes(wanted.rank)) return false;
    if (!wanted.excused && state !== "live") return false;
    finding.text ??= finding.element.textContent.toLowerCase();
    return wanted.words.every((word) => finding.text.includes(word));
  }

  function filter() {
    const wanted = {
      rule: field("rule"),
      level: field("level"),
      rank: field("rank"),
      excused: byId("excused")?.checked ?? true,
      words: words(field("search")),
    };
    let shown = 0;
    const hidden = new Set();
    findings.forEach((finding, number) => {
      const match = matches(finding, wanted);
      finding.element.hidden = !match;
      if (match) shown += 1;
      else hidden.add(String(number));
    });
    if (!findings.length) return;
    byId("shown").value = `${shown} of ${findings.length} shown`;
    byId("no-match").hidden = shown > 0;
    // What only hidden findings say is not said in the timeline either.
    for (const part of all("svg [data-findings]")) {
      const own = part.dataset.findings.split(" ");
      part.classList.toggle("unmarked", own.every((number) => hidden.has(number)));
    }
  }

  function showAll() {
    for (const id of ["search", "rule", "level", "rank"]) {
      if (byId(id)) byId(id).value = "";
    }
    if (byId("excused")) byId("excused").checked = true;
    filter();
  }

  function openFinding(finding) {
    if (finding.element.hidden) showAll();
    finding.details.open = true;
    finding.summary.focus({ preventScroll: true });
    finding.element.scrollIntoView({ block: "start" });
    choose(finding);
  }

  // Focus on one finding: what is not about it steps back.

  let chosen = null;

  function choose(finding) {
    chosen?.element.classList.remove("chosen");
    chosen = finding;
    for (const element of all(".dim")) element.classList.remove("dim");
    if (byId("unfocus")) byId("unfocus").hidden = !finding;
    if (!finding) return;
    finding.element.classList.add("chosen");
    const figure = byId(`timeline-${finding.element.dataset.process}`);
    if (!figure) return;
    showTimeline(figure);
    const own = new Set(finding.element.dataset.operations.split(" "));
    const number = String(findings.indexOf(finding));
    for (const bar of all(".op", figure)) {
      bar.classList.toggle("dim", !own.has(bar.dataset.sequence));
    }
    for (const edge of all("[data-from]", figure)) {
      edge.classList.toggle("dim", !own.has(edge.dataset.from) || !own.has(edge.dataset.to));
    }
    const bars = all("a.op", figure).filter((bar) =>
      bar.dataset.findings.split(" ").includes(number));
    if (bars.length) reveal(bars[bars.length - 1], bars[0]);
  }

  // The timeline

  function showTimeline(figure) {
    if (figures.length < 2) return;
    for (const other of figures) other.hidden = other !== figure;
    byId("process").value = figure.dataset.process;
  }

  // Scrolls the drawing, not the page, so that `bar` is seen, and `first` too if both fit.
  function reveal(bar, first = bar) {
    const view = bar.closest(".scroll");
    const [frame, a, b] = [view, first, bar].map((own) => own.getBoundingClientRect());
    const lanes = view.querySelector(".lanes").getBoundingClientRect().width;
    const fits = b.right - a.left < frame.width - lanes - 40;
    const left = (fits ? a.left : b.left) - frame.left - lanes - 20;
    const right = b.right - frame.right + 20;
    if (left < 0) view.scrollLeft += left;
    else if (right > 0) view.scrollLeft += right;
    const [top, bottom] = [Math.min(a.top, b.top), Math.max(a.bottom, b.bottom)];
    if (top < frame.top) view.scrollTop += top - frame.top - 10;
    else if (bottom > frame.bottom) view.scrollTop += bottom - frame.bottom + 20;
  }

  function goToBar(bar) {
    const figure = bar.closest("figure");
    showTimeline(figure);
    bar.focus({ preventScroll: true });
    reveal(bar);
    const frame = figure.querySelector(".scroll").getBoundingClientRect();
    if (frame.top < 0 || frame.bottom > innerHeight) timelines.scrollIntoView({ block: "nearest" });
  }

  // What orders a bar, for the line below the drawing.
  function about(bar) {
    const figure = bar.closest("figure");
    const { sequence } = bar.dataset;
    const edges = all("g[data-from]", figure);
    const told = (own, other) => {
      const reason = own.querySelector("title").textContent.split(": ").slice(1).join(": ");
      return `${own.dataset[other]} (${reason})`;
    };
    const ordered = (side, other, missing) => edges
      .filter((own) => own.dataset[side] === sequence && own.classList.contains("missing") === missing)
      .map((own) => told(own, other));
    const parts = [bar.getAttribute("aria-label")];
    const [after, before] = [ordered("to", "from", false), ordered("from", "to", false)];
    if (after.length) parts.push(`after ${after.join(", ")}`);
    if (before.length) parts.push(`before ${before.join(", ")}`);
    const apart = [...ordered("to", "from", true), ...ordered("from", "to", true)];
    if (apart.length) parts.push(`not ordered with ${apart.map((text) => text.split(" ")[0]).join(", ")}`);
    if (bar.matches("a.op")) parts.push("Enter opens the finding");
    figure.querySelector(".about").textContent = parts.join(" · ");
  }

  // The bar that the tab key reaches is the one that was there last.
  function setStop(bar) {
    const bars = all(".op", bar.closest("figure"));
    for (const other of bars) other.setAttribute("tabindex", other === bar ? "0" : "-1");
  }

  const laneOf = (bar) => Number(bar.querySelector(".bar").getAttribute("y"));
  const middleOf = (bar) => {
    const own = bar.querySelector(".bar");
    return Number(own.getAttribute("x")) + Number(own.getAttribute("width")) / 2;
  };

  // The nearest bar in the next lane that has one.
  function inNextLane(bars, bar, step) {
    const lane = laneOf(bar);
    const beyond = bars.filter((other) => (laneOf(other) - lane) * step > 0);
    const next = Math.min(...beyond.map((other) => Math.abs(laneOf(other) - lane)));
    const middle = middleOf(bar);
    return beyond
      .filter((other) => Math.abs(laneOf(other) - lane) === next)
      .sort((a, b) => Math.abs(middleOf(a) - middle) - Math.abs(middleOf(b) - middle))[0];
  }

  function moveFrom(bar, key) {
    const bars = all(".op", bar.closest("figure"));
    const place = bars.indexOf(bar);
    switch (key) {
      case "ArrowRight": return bars[place + 1];
      case "ArrowLeft": return bars[place - 1];
      case "ArrowDown": return inNextLane(bars, bar, 1);
      case "ArrowUp": return inNextLane(bars, bar, -1);
      case "Home": return bars[0];
      case "End": return bars[bars.length - 1];
      default: return null;
    }
  }

  const KEYS = ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End"];

  for (const figure of figures) {
    figure.querySelector(".about").textContent =
      "Arrow keys go from one operation to the next, Enter opens its finding, / searches.";
    const bars = all(".op", figure);
    const first = bars.find((bar) => bar.matches("a.op")) ?? bars[0];
    if (first) setStop(first);
    figure.addEventListener("focusin", (event) => {
      const bar = event.target.closest(".op");
      if (!bar) return;
      setStop(bar);
      about(bar);
      reveal(bar);
    });
    figure.addEventListener("mouseover", (event) => {
      const bar = event.target.closest(".op");
      if (bar) about(bar);
    });
    figure.addEventListener("keydown", (event) => {
      const bar = event.target.closest(".op");
      if (!bar || !KEYS.includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      moveFrom(bar, event.key)?.focus({ preventScroll: true });
    });
  }

  // Links within the page

  function follow(hash) {
    const target = hash.length > 1 ? byId(hash.slice(1)) : null;
    if (!target) return false;
    if (target.matches("article.finding")) {
      openFinding(findings.find((finding) => finding.element === target));
    } else if (target.matches(".op")) {
      goToBar(target);
    } else {
      return false;
    }
    return true;
  }

  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const link = event.target.closest("a[href]");
    const hash = link?.getAttribute("href");
    if (!hash?.startsWith("#")) return;
    if (link.matches(".focus, .bar-link")) {
      choose(findings.find((finding) => finding.element.contains(link)));
    }
    if (follow(hash)) {
      event.preventDefault();
      history.replaceState(null, "", hash);
    }
  });
  addEventListener("hashchange", () => follow(location.hash));

  // The keyboard elsewhere

  function neighbour(summary, step) {
    const shown = findings.filter((finding) => !finding.element.hidden);
    return shown[shown.findIndex((finding) => finding.summary === summary) + step];
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest("input:not([type=checkbox]), select");
    if (event.key === "/" && !typing && byId("search")) {
      event.preventDefault();
      byId("search").focus();
      byId("search").select();
    } else if (event.key === "Escape") {
      if (event.target.id === "search" && event.target.value) {
        event.target.value = "";
        filter();
      } else {
        choose(null);
      }
    } else if (event.key === "Enter" && event.target.id === "search") {
      event.preventDefault();
      neighbour(null, 1)?.summary.focus();
    } else if (event.target.matches(".finding > details > summary")) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const next = step && neighbour(event.target, step);
      if (next) {
        event.preventDefault();
        next.summary.focus();
      }
    }
  });

  // The controls

  const tools = byId("tools");
  if (tools) {
    tools.hidden = false;
    tools.addEventListener("submit", (event) => event.preventDefault());
    tools.addEventListener("input", filter);
    byId("expand").addEventListener("click", () => {
      for (const finding of findings) finding.details.open = true;
    });
    byId("collapse").addEventListener("click", () => {
      for (const finding of findings) finding.details.open = false;
    });
    byId("reset").addEventListener("click", () => {
      showAll();
      byId("search").focus();
    });
  }
  if (timelines) {
    timelines.querySelector(".tools").hidden = false;
    timelines.classList.add("docked");
    byId("unfocus").addEventListener("click", () => choose(null));
    byId("dock").addEventListener("click", () => {
      const docked = timelines.classList.toggle("docked");
      byId("dock").setAttribute("aria-pressed", String(docked));
    });
    byId("process")?.addEventListener("change", (event) => {
      choose(null);
      showTimeline(byId(`timeline-${event.target.value}`));
    });
    showTimeline(figures[0]);
    // What gets the focus is not to lie under the timeline.
    const keepClear = () => {
      const docked = getComputedStyle(timelines).position === "sticky";
      document.documentElement.style.scrollPaddingBottom =
        docked ? `${timelines.offsetHeight + 20}px` : "";
    };
    new ResizeObserver(keepClear).observe(timelines);
    addEventListener("resize", keepClear);
    byId("dock").addEventListener("click", keepClear);
  }

  // What comes open for paper and for readers without this script.
  const folded = all("details.stack, details.table");
  if (findings.length > FEW) folded.push(...findings.slice(1).map((finding) => finding.details));
  if (all("details.processes tbody tr").length > 8) folded.push(...all("details.processes"));
  for (const details of folded) details.open = false;

  let reopened = [];
  addEventListener("beforeprint", () => {
    reopened = all("details:not([open])");
    for (const details of reopened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of reopened) details.open = false;
  });

  filter();
  follow(location.hash);
})();
