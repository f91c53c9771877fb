"use strict";
// Where boxes lie: a worker says it.

// Where boxes lie. It runs in a worker and sees nothing of this page. A box lies in the row below the
// last of its operands; a few sweeps put each near to what it reads and to what reads it.
function placed({ widths, sources, targets, gap }) {
  const count = widths.length;
  const grouped = (keys, items) => {
    const first = new Int32Array(count + 1), list = new Int32Array(keys.length);
    for (const key of keys) first[key + 1]++;
    for (let i = 0; i < count; i++) first[i + 1] += first[i];
    const next = first.slice();
    keys.forEach((key, k) => { list[next[key]++] = items[k]; });
    return { first, list };
  };
  const reads = grouped(targets, sources), readBy = grouped(sources, targets);

  // Rows by depth first; an edge that closes a cycle (of folded modules) counts for nothing.
  const row = new Int32Array(count), state = new Uint8Array(count), cursor = reads.first.slice(0, count);
  for (let root = 0; root < count; root++) {
    const stack = state[root] ? [] : [root];
    while (stack.length) {
      const i = stack.at(-1);
      state[i] = 1;
      if (cursor[i] < reads.first[i + 1]) {
        const input = reads.list[cursor[i]++];
        if (state[input] === 0) stack.push(input);
        else if (state[input] === 2) row[i] = Math.max(row[i], row[input] + 1);
      } else {
        state[i] = 2;
        stack.pop();
        if (stack.length) row[stack.at(-1)] = Math.max(row[stack.at(-1)], row[i] + 1);
      }
    }
  }
  for (let i = 0; i < count; i++) { // leaves lie right above the first that reads them
    if (reads.first[i] < reads.first[i + 1]) continue;
    let least = Infinity;
    for (let k = readBy.first[i]; k < readBy.first[i + 1]; k++) least = Math.min(least, row[readBy.list[k]]);
    if (least < Infinity && least > 0) row[i] = least - 1;
  }

  const rows = [];
  for (let i = 0; i < count; i++) (rows[row[i]] ??= []).push(i);
  for (let r = 0; r < rows.length; r++) rows[r] ??= [];
  const x = new Float32Array(count), wanted = new Float32Array(count);
  for (const line of rows) {
    let right = 0;
    for (const i of line) { x[i] = right + widths[i] / 2; right += widths[i] + gap; }
    for (const i of line) x[i] -= right / 2;
  }
  const mean = (i, sides) => {
    let [sum, n] = [0, 0];
    for (const { first, list } of sides) {
      for (let k = first[i]; k < first[i + 1]; k++) { // what is far away pulls less
        const weight = 1 / Math.max(1, Math.abs(row[list[k]] - row[i])) ** 2;
        sum += weight * x[list[k]];
        n += weight;
      }
    }
    return n ? sum / n : x[i];
  };
  // The mean of packing from the left and from the right keeps boxes apart and near to their places.
  const settle = (line, sides) => {
    for (const i of line) wanted[i] = mean(i, sides);
    line.sort((a, b) => wanted[a] - wanted[b] || a - b);
    const apart = k => (widths[line[k - 1]] + widths[line[k]]) / 2 + gap;
    const left = line.map(i => wanted[i]);
    for (let k = 1; k < line.length; k++) left[k] = Math.max(left[k], left[k - 1] + apart(k));
    const right = line.map(i => wanted[i]);
    for (let k = line.length - 2; k >= 0; k--) right[k] = Math.min(right[k], right[k + 1] - apart(k + 1));
    line.forEach((i, k) => { x[i] = (left[k] + right[k]) / 2; });
  };
  for (let sweep = 0; sweep < 3; sweep++) {
    for (let r = 1; r < rows.length; r++) settle(rows[r], [reads]);
    for (let r = rows.length - 2; r >= 0; r--) settle(rows[r], sweep === 2 ? [reads, readBy] : [readBy]);
  }
  let least = Infinity, most = -Infinity;
  for (let i = 0; i < count; i++) { least = Math.min(least, x[i] - widths[i] / 2); most = Math.max(most, x[i] + widths[i] / 2); }
  for (let i = 0; i < count; i++) x[i] -= least;
  return { x, row, rows, width: Math.max(0, most - least) };
}

// One worker lays out all graphs. It is made of a Blob, as pages from files load no other file; where
// a page may have none, the layout runs here.
const layout = { worker: null, waiting: new Map(), asked: 0 };
function startWorker() {
  try {
    const text = `"use strict"; ${placed}; onmessage = ({ data }) => postMessage({ id: data.id, found: placed(data) });`;
    layout.worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    layout.worker.onmessage = ({ data }) => settled(data.id, data.found);
    layout.worker.onerror = event => { event.preventDefault(); layout.worker = null; for (const [id, { task }] of layout.waiting) settled(id, placed(task)); };
  } catch { layout.worker = null; }
}

function settled(id, found) {
  const waits = layout.waiting.get(id);
  layout.waiting.delete(id);
  waits?.done(found);
}

function lay(task) {
  if (!layout.worker && !layout.asked) startWorker();
  const id = ++layout.asked;
  return new Promise(done => {
    layout.waiting.set(id, { task, done });
    if (layout.worker) layout.worker.postMessage({ id, ...task });
    else setTimeout(() => settled(id, placed(task)));
  });
}
