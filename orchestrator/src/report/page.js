// Zoom of the time line: + and -, 0; the wheel with Ctrl; without this script all of it is shown.
(() => {
  const scroll = document.querySelector(".scroll"), track = document.querySelector(".track");
  if (!scroll || !track) return;
  let zoom = 1;
  const to = (wanted, x) => {
    const next = Math.min(2000, Math.max(1, wanted));
    const at = (scroll.scrollLeft + x) / track.clientWidth;
    zoom = next;
    track.style.setProperty("--zoom", String(zoom));
    scroll.scrollLeft = at * track.clientWidth - x;
    document.getElementById("zoom").textContent = zoom > 1 ? `${zoom.toFixed(1)} ×` : "";
  };
  const middle = () => scroll.clientWidth / 2;
  scroll.addEventListener("keydown", (event) => {
    const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, "0": 0 }[event.key];
    if (factor === undefined) return;
    to(factor === 0 ? 1 : zoom * factor, middle());
    event.preventDefault();
  });
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    to(zoom * (event.deltaY < 0 ? 1.2 : 1 / 1.2), event.clientX - scroll.getBoundingClientRect().left);
    event.preventDefault();
  }, { passive: false });
})();
