"use strict";
// Words of numbers.

// Three digits: 1.02, 31.1, 311.
function digits(value) {
  const size = Math.abs(value);
  return size >= 99.95 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

const ROUNDS_UP = 0.9995; // of a unit: three digits of the next smaller one would be 1000

// A time in the unit that suits it: 1.02 s, 311 us.
function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "";
  if (seconds === 0) return "0 s";
  const size = Math.abs(seconds);
  for (const [unit, factor] of [["s", 1], ["ms", 1e3], ["us", 1e6]]) {
    if (size * factor >= ROUNDS_UP) return `${digits(seconds * factor)} ${unit}`;
  }
  return `${digits(seconds * 1e9)} ns`;
}

// An amount with a prefix: 3.20 GFLOP/s, 12 B.
function amount(value, unit) {
  if (value === null || value === undefined || !isFinite(value)) return "";
  const size = Math.abs(value);
  for (const [prefix, factor] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= factor * ROUNDS_UP) return `${digits(value / factor)} ${prefix}${unit}`.trim();
  }
  return `${Number.isInteger(value) ? value : digits(value)} ${unit}`.trim();
}

const bytes = value => amount(value, "B");
const whole = value => (value ?? 0).toLocaleString("en-US");

function percent(part) {
  if (part === null || part === undefined || !isFinite(part)) return "";
  if (part === 0) return "0%";
  if (Math.abs(part) < 0.00005) return "<0.01%";
  return Math.abs(part) < 0.00995 ? `${(100 * part).toFixed(2)}%`
    : Math.abs(part) < 0.0995 ? `${(100 * part).toFixed(1)}%` : `${(100 * part).toFixed(0)}%`;
}

const sentence = text => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function counted(count, noun, plural = `${noun}s`) {
  return `${whole(count)} ${count === 1 ? noun : plural}`;
}
