// Zoom of the time line: + and -, 0; the wheel with Ctrl; without this script all of it is shown.
for (const line of document.querySelectorAll(".line")) {
  const scroll = line.querySelector(".scroll"), track = line.querySelector(".track");
  const [from, to] = line.querySelectorAll(".axis > span"), whole = [from.textContent, to.textContent];
  const [began, until, offset] = ["began", "until", "offset"].map((name) => Number(track.dataset[name]));
  let zoom = 1;
  const time = (part, precise) => {
    const at = new Date(began + part * (until - began) + offset * 1000).toISOString().replace("T", " ");
    return at.slice(0, precise ? 23 : 19);
  };
  // The times at the ends of what is visible.
  const label = () => {
    const left = scroll.scrollLeft / track.clientWidth, seen = scroll.clientWidth / track.clientWidth;
    const precise = seen * (until - began) < 60000;
    const ends = zoom > 1 ? [time(left, precise), time(Math.min(1, left + seen), precise)] : whole;
    [from.textContent, to.textContent] = ends;
    line.querySelector(".zoom").textContent = zoom > 1 ? `${zoom.toFixed(1)} ×` : "";
  };
  const set = (wanted, x) => {
    const at = (scroll.scrollLeft + x) / track.clientWidth;
    zoom = Math.min(2000, Math.max(1, wanted));
    track.style.setProperty("--zoom", String(zoom));
    scroll.scrollLeft = at * track.clientWidth - x;
    label();
  };
  const press = (key) => {
    const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, "0": 0 }[key];
    if (factor !== undefined) set(zoom * factor, scroll.clientWidth / 2);
    return factor !== undefined;
  };
  scroll.addEventListener("keydown", (event) => press(event.key) && event.preventDefault());
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    set(zoom * (event.deltaY < 0 ? 1.2 : 1 / 1.2), event.clientX - scroll.getBoundingClientRect().left);
    event.preventDefault();
  }, { passive: false });
  scroll.addEventListener("scroll", label);
  window.addEventListener("resize", label);
  const keys = line.querySelector(".keys");
  keys.hidden = false;
  keys.addEventListener("click", (event) => event.target.tagName === "BUTTON" && press(event.target.textContent));
}
