// The fixed image under the moving one: a slider shows more or less of it, blinking shows both in turn.
const overlay = document.querySelector(".overlay");
const picture = (view, plane) => document.getElementById(view + "-" + plane);
if (overlay && picture("fixed", 0)) {
  const [slider, blink, before] = overlay.querySelectorAll("input");
  const over = [...overlay.querySelectorAll("img.over")];
  const show = (part) => over.forEach((image) => { image.style.clipPath = `inset(0 ${100 - part}% 0 0)`; });
  const load = () => over.forEach((image, plane) => {
    image.src = picture(before.checked ? "moving" : "warped", plane).src;
  });
  overlay.querySelectorAll("img.under").forEach((image, plane) => { image.src = picture("fixed", plane).src; });
  let shown = true;
  slider.oninput = () => { blink.checked = false; show(slider.value); };
  before.onchange = load;
  blink.onchange = () => show(slider.value);
  setInterval(() => { if (blink.checked) { shown = !shown; show(shown ? 100 : 0); } }, 700);
  load();
  show(slider.value);
  overlay.hidden = false;
}
