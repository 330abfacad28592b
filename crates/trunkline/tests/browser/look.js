// What a person could not read or reach on the page that is open, as a list of sentences.
(() => {
  const wrong = [];
  const isPrint = matchMedia('print').matches;
  const all = [...document.querySelectorAll('body *')];
  const isShown = one => one.getClientRects().length > 0 && !one.closest('.hidden') &&
    one.checkVisibility({visibilityProperty: true});

  // Details are unfolded on paper; on a screen, what is in them is looked at, too.
  for (const details of document.querySelectorAll('details')) {
    if (!isPrint) details.open = true;
    if (![...details.children].every(isShown)) wrong.push(`${details.textContent.trim().slice(0, 30)} is folded`);
  }
  const name = one => {
    const text = (one.textContent || '').trim().replace(/\s+/g, ' ').slice(0, 50);
    return `<${one.tagName.toLowerCase()} class="${one.getAttribute('class') || ''}"> ${text}`;
  };

  // The page does not scroll sideways.
  const root = document.documentElement;
  if (root.scrollWidth > window.innerWidth + 1) {
    const widest = all.filter(one => isShown(one) && !one.closest('.scroll') &&
      one.getBoundingClientRect().right > window.innerWidth + 1);
    const names = widest.slice(-3).map(name).join('; ');
    wrong.push(`the page is ${root.scrollWidth} wide, wider than the window (${window.innerWidth}): ${names}`);
  }

  // Contrast: WCAG 2.2 s1.4.3 (4.5 for text), s1.4.11 (3 for graphics).
  const parse = text => {
    const found = text.match(/^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/);
    return found && [+found[1], +found[2], +found[3], found[4] === undefined ? 1 : +found[4]];
  };
  const luminance = colour => {
    const [r, g, b] = colour.map(part => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const paper = one => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour && colour[3] === 1) return colour;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches && !isPrint
      ? [18, 18, 18] : [255, 255, 255];
  };
  const hasText = one => [...one.childNodes].some(it => it.nodeType === 3 && it.textContent.trim());
  for (const one of all.filter(it => hasText(it) && isShown(it) && it.tagName !== 'title')) {
    const style = getComputedStyle(one);
    const ink = parse(one.closest('svg') ? style.fill : style.color);
    const found = ink && contrast(ink, paper(one));
    if (!found || found < 4.5) wrong.push(`contrast ${found && found.toFixed(1)} of ${name(one)}`);
    if (parseFloat(style.fontSize) < 9) wrong.push(`letters of ${style.fontSize} in ${name(one)}`);
  }
  for (const line of document.querySelectorAll('svg .line polyline, svg rect.value, .edge path, .swatch rect')) {
    const style = getComputedStyle(line);
    const ink = line.matches('.edge path') ? parse(style.stroke) : parse(style.stroke) || parse(style.fill);
    const found = ink && contrast(ink, paper(line));
    if (!found || found < 3) wrong.push(`contrast ${found && found.toFixed(1)} of the line ${name(line)}`);
  }

  // Every drawing has a label, or is hidden from screen readers.
  for (const svg of document.querySelectorAll('svg')) {
    const label = svg.getAttribute('aria-label') || (svg.querySelector(':scope > title') || {}).textContent;
    if (['img', 'group'].includes(svg.getAttribute('role'))) {
      if (!label || !label.trim()) wrong.push('a drawing without a label');
    } else if (svg.getAttribute('aria-hidden') !== 'true') {
      wrong.push('a drawing that is neither labelled nor hidden');
    }
  }

  // What can be used has a name for screen readers.
  const nameOf = one => one.getAttribute('aria-label') || one.title || one.textContent ||
    (one.id && document.querySelector(`label[for="${CSS.escape(one.id)}"]`) || {}).textContent ||
    (one.closest('label') || {}).textContent || '';
  for (const one of document.querySelectorAll('a[href], button, input:not([type=hidden]), select, [tabindex="0"]')) {
    if (!nameOf(one).trim()) wrong.push(`no name of ${name(one)}`);
  }

  // Headings begin with the first level, and leave none out.
  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) wrong.push(`a heading of level ${next} after level ${level}: ${name(heading)}`);
    level = next;
  }
  if (!document.querySelector('h1')) wrong.push('no heading of level 1');

  // Links lead somewhere, and ids are unique.
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    if (!document.getElementById(link.getAttribute('href').slice(1))) {
      wrong.push(`the link ${link.getAttribute('href')} leads nowhere`);
    }
  }
  const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  for (const id of new Set(ids)) {
    const count = ids.filter(other => other === id).length;
    if (count > 1) wrong.push(`the id ${id} is there ${count} times`);
  }

  // What scrolls can be scrolled by the keyboard, and says what it is.
  for (const one of all.filter(it => isShown(it) && it.scrollWidth > it.clientWidth + 1)) {
    if (!['auto', 'scroll'].includes(getComputedStyle(one).overflowX)) continue;
    if (one.tabIndex !== 0) wrong.push(`${name(one)} cannot be scrolled by the keyboard`);
    else if (!one.getAttribute('aria-label')) wrong.push(`${name(one)} scrolls without a name`);
  }

  // Tables have headings, and the page has a language, a title and one main part.
  for (const table of document.querySelectorAll('table')) {
    if (!table.querySelector('th')) wrong.push('a table without headings');
  }
  if (!root.lang) wrong.push('no language');
  if (!document.title) wrong.push('no title');
  if (document.querySelectorAll('main').length !== 1) wrong.push('not one main part');
  for (const summary of document.querySelectorAll('summary')) {
    if (!summary.textContent.trim()) wrong.push('a summary without a text');
  }
  return [...new Set(wrong)];
})()
