"use strict";
const shown = JSON.parse(document.getElementById("document").textContent);
document.title = shown.title;
document.getElementById("page").textContent = JSON.stringify(shown, null, 1);
