"use strict";
(() => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  const size = (bytes) => {
    let power = 0;
    for (; bytes >= 1024 && power < units.length - 1; power++) bytes /= 1024;
    return (power ? bytes.toFixed(2) : bytes) + units[power];
  };

  // The places as a tree. What a place does not list becomes a child of its own.
  const rows = JSON.parse(document.getElementById("place-data").textContent);
  const places = rows.map((row, id) => {
    const [parent, kind, name, disk, alone, files] = row;
    return { id, parent: id ? parent : -1, kind, name, disk, alone, files, children: [] };
  });
  rows.forEach((row, id) => {
    const [, , , , , , looseDisk, looseAlone, count, otherDisk, otherAlone] = row;
    const place = places[id];
    if (id) places[place.parent].children.push(place);
    const add = (name, disk, alone) => {
      if (disk) place.children.push({ id: -1, parent: id, name, disk, alone, children: [] });
    };
    add("small files", looseDisk, looseAlone);
    add(`${count} others`, otherDisk, otherAlone);
  });
  for (const place of places) {
    place.children.sort((a, b) => b.disk - a.disk);
    // A place that holds nothing but files of its own needs no rectangle inside.
    if (place.children.length === 1 && place.children[0].id < 0) place.children = [];
  }

  const map = document.getElementById("map");
  const tiles = document.getElementById("tiles");
  const trail = document.getElementById("trail");
  const details = document.getElementById("details");
  map.hidden = false;

  const above = (place) => {
    const path = [];
    for (let at = place; at; at = places[at.parent]) path.unshift(at);
    return path;
  };
  const text = (place) => {
    const names = above(place).slice(1).map((one) => one.name);
    const path = names.join("/").replace(/^\/\//, "/") || place.name;
    const files = place.files ? `, ${place.files.toLocaleString("en")} files` : "";
    const kind = place.kind === "closed-subvolume" ? " (a snapshot as a whole)" : "";
    return `${path}${kind}: ${size(place.disk)} on disk, ${size(place.alone)} alone here${files}`;
  };

  // Rows of rectangles, each row along the shorter side, with sides as equal as they can be.
  const layout = (children, box, give) => {
    let { x, y, w, h } = box;
    let left = children.reduce((sum, child) => sum + child.disk, 0);
    let start = 0;
    while (start < children.length && w > 0 && h > 0 && left > 0) {
      const scale = (w * h) / left;
      const side = Math.min(w, h);
      const worst = (sum, least, most) => {
        const thick = (sum * scale) / side;
        const long = (most * scale) / thick;
        const short = (least * scale) / thick;
        return Math.max(long / thick, thick / short, thick / long);
      };
      let end = start, sum = 0, ratio = Infinity;
      for (; end < children.length; end++) {
        const more = sum + children[end].disk;
        const next = worst(more, children[end].disk, children[start].disk);
        if (next > ratio) break;
        [sum, ratio] = [more, next];
      }
      const thick = (sum * scale) / side;
      let at = 0;
      for (const child of children.slice(start, end)) {
        const long = (child.disk * scale) / thick;
        if (w >= h) give(child, { x, y: y + at, w: thick, h: long });
        else give(child, { x: x + at, y, w: long, h: thick });
        at += long;
      }
      if (w >= h) [x, w] = [x + thick, w - thick];
      else [y, h] = [y + thick, h - thick];
      left -= sum;
      start = end;
    }
  };

  let shown;
  const head = 18;
  const draw = (place, box, depth) => {
    const w = box.w - 1, h = box.h - 1;
    if (w < 2 || h < 2) return;
    const opens = place.children.length > 0;
    const nests = opens && depth < 5 && w > 64 && h > 48;
    const tile = document.createElement(opens ? "button" : "div");
    tile.className = nests ? "tile frame" : "tile";
    tile.style.cssText = `left:${box.x}px;top:${box.y}px;width:${w}px;height:${h}px;` +
      `--alone:${place.disk ? (100 * place.alone) / place.disk : 0}%`;
    tile.title = text(place);
    if (w > 36 && h > 17) {
      const label = document.createElement("span");
      label.textContent = w > 110 ? `${place.name} ${size(place.disk)}` : place.name;
      tile.append(label);
    }
    const tell = () => { details.textContent = text(place); };
    tile.addEventListener("pointerenter", tell);
    tile.addEventListener("focus", tell);
    if (opens) {
      tile.type = "button";
      tile.setAttribute("aria-label", text(place));
      tile.addEventListener("click", () => show(place));
    } else {
      tile.addEventListener("click", tell);
    }
    tiles.append(tile);
    if (nests) {
      const inner = { x: box.x + 2, y: box.y + head, w: w - 4, h: h - head - 2 };
      layout(place.children, inner, (child, where) => draw(child, where, depth + 1));
    }
  };

  const show = (place) => {
    shown = place;
    tiles.replaceChildren();
    trail.replaceChildren();
    for (const one of above(place)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = one.name;
      if (one === place) button.setAttribute("aria-current", "true");
      else button.addEventListener("click", () => show(one));
      trail.append(button);
    }
    details.textContent = text(place);
    const box = { x: 0, y: 0, w: tiles.clientWidth, h: tiles.clientHeight };
    const children = place.children.length ? place.children : [place];
    layout(children, box, (child, where) => draw(child, where, child === place ? 9 : 0));
  };

  const top = places[0];
  show(top.children.length === 1 && top.children[0].id > 0 ? top.children[0] : top);
  let width = tiles.clientWidth;
  addEventListener("resize", () => {
    if (tiles.clientWidth !== width) {
      width = tiles.clientWidth;
      show(shown);
    }
  });
})();
