// The page works without this script. With it, the part that changes is asked for again and put in
// place, clicks do not load the whole page, and panels can be read second by second.
"use strict";
(() => {
  const main = document.getElementById("main");
  const status = document.getElementById("status");
  const REFRESH_MS = 1000, REFRESH_MS_MAX = 5000, PICTURE_MS = 500;
  // The second that is read, by its end. It stays the same while time goes on.
  let second = null;
  // While a button of the mouse is down, a new part would swallow the click.
  let isDown = false;
  let timer = 0;

  const end = () => main.querySelector(".end");
  const isLive = () => end()?.dataset.live === "true";
  const local = (ms) => new Date(Number(ms)).toLocaleTimeString([], { hour12: false });
  const plots = () => [...main.querySelectorAll(".plot")];
  const columns = (plot) => [...plot.querySelectorAll(".column")];
  const place = (plot) => columns(plot).findIndex((column) => column.dataset.ms === second);

  async function get(path) {
    const answer = await fetch(path, { cache: "no-store", credentials: "same-origin" });
    // The session is over: the whole page brings the form, which leads back here.
    if (answer.status === 401) location.reload();
    const text = await answer.text();
    if (!answer.ok) throw new Error(text.trim() || answer.statusText);
    return text;
  }

  function localise() {
    for (const time of main.querySelectorAll("time[data-ms]")) time.textContent = local(time.dataset.ms);
    for (const zone of main.querySelectorAll(".zone")) zone.textContent = "local time";
  }

  // What finds an element again in the new part.
  function mark(element) {
    if (!element || !main.contains(element)) return null;
    if (element.id) return "#" + CSS.escape(element.id);
    if (element.classList.contains("plot")) return "#" + element.parentElement.id + " .plot";
    const href = element.getAttribute("href");
    return href === null ? null : "a[href=" + JSON.stringify(href) + "]";
  }

  function put(html) {
    const focused = mark(document.activeElement);
    const scrolled = [...main.querySelectorAll(".wide")].map((wide) => wide.scrollLeft);
    main.innerHTML = html;
    localise();
    main.querySelectorAll(".wide").forEach((wide, n) => { wide.scrollLeft = scrolled[n] ?? 0; });
    if (focused) main.querySelector(focused)?.focus({ preventScroll: true });
    if (second !== null) read();
  }

  const isHeld = () => {
    const selection = getSelection();
    return isDown || (!selection.isCollapsed && main.contains(selection.anchorNode));
  };

  async function refresh(isWanted) {
    clearTimeout(timer);
    const search = location.search;
    try {
      const html = await get("/panels" + search);
      if (search !== location.search) return;
      if (isWanted || !isHeld()) put(html);
      tell();
    } catch (error) {
      if (search !== location.search) return;
      say("No answer: " + error.message, true);
    }
    schedule();
  }

  function tell() {
    const isOld = document.getElementById("old") !== null;
    say(isOld ? "Old figures" : isLive() ? "" : "Paused", isOld);
  }

  function say(text, isWrong = false) {
    status.classList.toggle("wrong", isWrong);
    if (status.textContent !== text) status.textContent = text;
  }

  function schedule() {
    clearTimeout(timer);
    if (document.hidden || !(isLive() || status.classList.contains("wrong"))) return;
    const step = Number(end()?.dataset.step ?? 0);
    timer = setTimeout(refresh, Math.min(Math.max(REFRESH_MS, step), REFRESH_MS_MAX));
  }

  // Paths change faster than seconds pass.
  setInterval(async () => {
    if (document.hidden || isHeld() || !isLive() || !document.getElementById("paths")) return;
    const search = location.search;
    try {
      const html = await get("/picture" + search);
      const picture = document.getElementById("picture");
      if (search !== location.search || !picture || isHeld()) return;
      const focused = picture.contains(document.activeElement) ? mark(document.activeElement) : null;
      picture.innerHTML = html;
      if (focused) picture.querySelector(focused)?.focus({ preventScroll: true });
    } catch { /* refresh() says so. */ }
  }, PICTURE_MS);

  function go(href, isReplaced = false) {
    history[isReplaced ? "replaceState" : "pushState"](null, "", href);
    refresh(true);
  }

  // Shows the second in all panels, and says what it was in one of them.
  function read(asked = document.activeElement) {
    for (const plot of plots()) {
      plot.querySelector(".column.at")?.classList.remove("at");
      const column = columns(plot)[place(plot)];
      column?.classList.add("at");
      const readout = document.getElementById("readout");
      if (!column || !readout || plot !== asked) continue;
      readout.textContent = column.textContent.replace(/^\S+ UTC/, local(second));
    }
  }

  main.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-go]");
    if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });

  main.addEventListener("pointermove", (event) => {
    const rect = event.target.closest?.(".column");
    // When a panel moves below a mouse that rests, nobody has pointed at anything.
    if (!rect || (event.movementX === 0 && event.movementY === 0)) return;
    second = rect.dataset.ms;
    read(rect.parentElement);
  });

  main.addEventListener("keydown", (event) => {
    const plot = event.target.closest?.(".plot");
    if (!plot) return;
    const all = columns(plot), now = place(plot), last = all.length - 1;
    const left = now < 0 ? last : now - 1;
    const to = { ArrowLeft: left, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    second = all[Math.min(Math.max(to, 0), last)].dataset.ms;
    read(plot);
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "p" || event.ctrlKey || event.metaKey || event.altKey) return;
    document.getElementById(isLive() ? "pause" : "live")?.click();
  });

  main.addEventListener("input", (event) => {
    if (event.target.id !== "scroll") return;
    const time = end()?.querySelector("time");
    if (time) time.textContent = local(event.target.value);
    event.target.setAttribute("aria-valuetext", "until " + local(event.target.value));
  });

  main.addEventListener("change", (event) => {
    if (event.target.id !== "scroll") return;
    const url = new URL(location.href);
    // The slider moves in whole seconds, so that it may stop within a second of the end.
    if (Number(event.target.max) - Number(event.target.value) < 1000) url.searchParams.delete("until");
    else url.searchParams.set("until", event.target.value);
    go(url.pathname + url.search, true);
  });

  addEventListener("pointerdown", () => { isDown = true; });
  for (const name of ["pointerup", "pointercancel", "blur"]) {
    // The click comes after the button.
    addEventListener(name, () => setTimeout(() => { isDown = false; }, 50));
  }
  addEventListener("popstate", () => refresh(true));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

  document.documentElement.classList.add("script");
  localise();
  tell();
  schedule();
})();
