// What the runs were asked to do and what they ran on: what they share, what differs, and how to run them again.
(() => {
  fq.drawers.settings = () => {
    const runs = fq.runs(), into = fq.by("run-facts");
    if (!runs.length) return;
    const titles = [...new Set(runs.flatMap((run) => run.facts.map(([title]) => title)))];
    const parts = titles.flatMap((title) => group(title, runs));
    const commands = runs.filter((run) => run.command);
    if (commands.length > 3) parts.push(fq.make("details", { class: "numbers" }, fq.make("summary", {}, `Commands to run each of the ${commands.length} again`), again(commands)));
    else if (commands.length) parts.push(again(commands));
    into.replaceChildren(...parts);
  };

  /** One group of facts: what all runs share as a list, the rest as a table. */
  function group(title, runs) {
    const each = runs.map((run) => new Map(run.facts.find(([name]) => name === title)?.[1] ?? []));
    // The method is what the columns are called already.
    const known = runs.length > 1 && runs.every((run) => run.label === run.method);
    const names = [...new Set(each.flatMap((facts) => [...facts.keys()]))].filter((name) => !(known && name === "method"));
    const same = names.filter((name) => each.every((facts) => facts.get(name) === each[0].get(name)));
    const holders = (name) => each.filter((facts) => facts.has(name)).length;
    const rest = names.filter((name) => !same.includes(name) && holders(name) > 1);
    const out = fq.make("section", { class: "facts" }, fq.make("h3", {}, title));
    if (same.length) out.append(list(same, each[0]));
    if (rest.length) {
      const rows = rest.map((name) => [name, ...each.map((facts) => facts.get(name) ?? "")]);
      out.append(fq.tableElement(`${title}: what differs`, ["", ...runs.map((run) => run.label)], rows, false));
    }
    each.forEach((facts, i) => {
      const own = names.filter((name) => facts.has(name) && holders(name) === 1 && runs.length > 1);
      if (own.length) out.append(fq.make("h4", {}, `${runs[i].label} alone`), list(own, facts));
    });
    return names.length ? [out] : [];
  }

  const list = (names, facts) => fq.make("dl", {}, ...names.map((name) => fq.make("div", {}, fq.make("dt", {}, name), fq.make("dd", {}, facts.get(name)))));

  function again(runs) {
    const text = runs.map((run) => run.command).join("\n");
    const code = fq.make("pre", { class: "code", tabindex: "0" }, ...runs.map((run) => fq.make("div", {}, fq.command(fq.make("code", {}, run.command)))));
    const button = fq.make("button", { type: "button", class: "button" }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
    });
    return fq.make("section", { class: "facts command" }, fq.make("header", {}, fq.make("h3", {}, runs.length > 1 ? "To run one of them again" : "To run it again"), button), code);
  }
})();
