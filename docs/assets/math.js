// Render what pymdownx.arithmatex marked, with the KaTeX of this folder. Material publishes
// document$ for every page it shows, also when it swaps pages without loading them anew.
(() => {
  const options = {
    delimiters: [
      { left: "\\[", right: "\\]", display: true },
      { left: "\\(", right: "\\)", display: false },
    ],
    throwOnError: false,
  };
  const render = () => {
    for (const part of document.querySelectorAll(".arithmatex, .md-nav__link"))
      renderMathInElement(part, options);
  };
  if (window.document$) window.document$.subscribe(render);
  else render();
})();
