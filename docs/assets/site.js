// In commands, options such as --json are kept whole where a line is wrapped; copying gives the same text as before.
for (const code of document.querySelectorAll(".language-sh code")) {
  const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  for (const text of [...(function* () { while (texts.nextNode()) yield texts.currentNode; })()]) {
    const parts = text.data.split(/(?<=^|\s)(--?[\w-]+)/);
    if (parts.length === 1) continue;
    text.replaceWith(...parts.map((part, index) => {
      if (index % 2 === 0) return part;
      const option = document.createElement("span");
      option.className = "option";
      option.textContent = part;
      return option;
    }));
  }
}
