// Where pictures come from: a drawing, the camera, files. Each is cut to a square.
import { PROGRAM } from "./program.js";

const find = (selector) => document.querySelector(selector);
const drawing = find("#draw canvas");
const video = find("#camera video");
const shown = find("#files img");

// A square picture in the network's size.
export function square(source, width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = PROGRAM.side;
  const part = Math.min(width, height);
  canvas
    .getContext("2d", { willReadFrequently: true })
    .drawImage(source, (width - part) / 2, (height - part) / 2, part, part, 0, 0, PROGRAM.side, PROGRAM.side);
  return canvas;
}

// A picture as the network takes it: [height, width, colour], normalised.
export function numbers(canvas) {
  const { side, mean, deviation } = PROGRAM;
  const { data } = canvas.getContext("2d").getImageData(0, 0, side, side);
  const x = new Float32Array(3 * side * side);
  for (let i = 0; i < x.length; i++) {
    const colour = i % 3;
    x[i] = (data[4 * ((i - colour) / 3) + colour] / 255 - mean[colour]) / deviation[colour];
  }
  return x;
}

const pen = drawing.getContext("2d", { willReadFrequently: true });
const cursor = { x: 144, y: 144, down: false };
let inked = false;

export function wipe() {
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, drawing.width, drawing.height);
  Object.assign(pen, { lineWidth: 18, lineCap: "round", lineJoin: "round", strokeStyle: "#000000" });
  inked = false;
}

function line(fromX, fromY, toX, toY) {
  pen.beginPath();
  pen.moveTo(fromX, fromY);
  pen.lineTo(toX, toY);
  pen.stroke();
  inked = true;
}

function place(event) {
  const box = drawing.getBoundingClientRect();
  const scale = drawing.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

export function startDrawing(changed) {
  let last = null;
  wipe();
  drawing.addEventListener("pointerdown", (event) => {
    drawing.setPointerCapture(event.pointerId);
    last = place(event);
    line(...last, ...last);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (!last) return;
    const now = place(event);
    line(...last, ...now);
    last = now;
  });
  for (const name of ["pointerup", "pointercancel"]) {
    drawing.addEventListener(name, () => {
      if (last) changed();
      last = null;
    });
  }
  const moves = { ArrowLeft: [-8, 0], ArrowRight: [8, 0], ArrowUp: [0, -8], ArrowDown: [0, 8] };
  drawing.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    if (!move && event.key !== " ") return;
    event.preventDefault();
    if (event.key === " ") cursor.down = !cursor.down;
    const { x, y } = cursor;
    cursor.x = Math.min(280, Math.max(8, x + (move?.[0] ?? 0)));
    cursor.y = Math.min(280, Math.max(8, y + (move?.[1] ?? 0)));
    if (cursor.down) line(x, y, cursor.x, cursor.y);
    changed();
  });
}

// Turns the camera on or off; the error's text is for the user.
export async function camera(on) {
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  if (!on) return;
  if (!navigator.mediaDevices) throw new Error("this page may not use a camera: open it by https");
  video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  await video.play();
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function fromFiles(files) {
  const found = [];
  for (const file of files) {
    const picture = await createImageBitmap(file).catch(() => {
      throw new Error(`${file.name} is no picture that this browser reads`);
    });
    found.push(square(picture, picture.width, picture.height));
  }
  if (found.length) {
    shown.src = found.at(-1).toDataURL();
    await shown.decode();
    shown.hidden = false;
  }
  return found;
}

// The pictures that a press of a button takes from a source.
export async function taken(source) {
  if (source === "draw") {
    if (!inked) throw new Error("there is no drawing yet");
    const picture = square(drawing, drawing.width, drawing.height);
    wipe();
    return [picture];
  }
  const found = [];
  for (let i = 0; i < 8 && video.videoWidth; i++) {
    found.push(square(video, video.videoWidth, video.videoHeight));
    await wait(120);
  }
  if (!found.length) throw new Error("the camera shows nothing yet");
  return found;
}

// The picture that a source shows now, if there is one.
export function current(source) {
  if (source === "draw") return inked ? square(drawing, drawing.width, drawing.height) : null;
  if (source === "camera") {
    return video.videoWidth ? square(video, video.videoWidth, video.videoHeight) : null;
  }
  return shown.hidden ? null : square(shown, shown.naturalWidth, shown.naturalHeight);
}
