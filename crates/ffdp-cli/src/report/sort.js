// A click on the head of a column sorts the table by it, a second click the other way round.
document.querySelectorAll("table.sortable").forEach((table) => {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    let way = -1;
    head.onclick = () => {
      way = -way;
      const text = (row) => row.cells[column].textContent.trim();
      const compare = (a, b) => {
        const [x, y] = [text(a), text(b)];
        // Cells without a value come last, whichever way.
        const [none, nothing] = [x, y].map((value) => value === "" || value === "-");
        if (none || nothing) return none - nothing;
        return way * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
      };
      [...body.rows].sort(compare).forEach((row) => body.append(row));
      table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    };
  });
});
