"""The script of a report, and that of a page which is watched. Nothing of the page needs them.

Tables are sorted by the headings of their columns, long ones are filtered; a kernel opens when a
link leads to it; candidates are drawn by any two parameters, and each says its values.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256


def script_policy(source: str) -> str:
    """The words of a content security policy that allow this script and no other."""
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


SCRIPT = r"""
'use strict';
const make = (name, props, ...inside) => {
  const e = Object.assign(document.createElement(name), props);
  e.append(...inside);
  return e;
};
const number = text => {
  const clock = /^(?:(\d+):)?(\d+):(\d\d)$/.exec(text);
  if (clock) return 3600 * (clock[1] || 0) + 60 * clock[2] + +clock[3];
  return parseFloat(text.replace(/^[>\u00d7 ]+/, ''));
};
const key = cell => cell.dataset.sort || cell.textContent.trim();

function sortable(table) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 2) return;
  [...table.tHead.rows[0].cells].forEach((th, column) => {
    if (!th.textContent) return;
    const button = make('button', {type: 'button', className: 'sort'}, ...th.childNodes);
    th.append(button);
    button.onclick = () => {
      const down = th.getAttribute('aria-sort') != 'descending';
      for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
      th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const rows = [...body.rows].map(row => [key(row.cells[column]), row]);
      const known = rows.filter(([k]) => !isNaN(number(k)));
      const figures = 2 * known.length > rows.length;
      rows.sort(([a], [b]) => {
        const x = number(a), y = number(b), sign = down ? -1 : 1;
        if (!figures) return -sign * a.localeCompare(b);
        return isNaN(x) - isNaN(y) || sign * (x - y) || 0;
      });
      body.append(...rows.map(([, row]) => row));
    };
  });
}

function filterable(table) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 16) return;
  const name = table.getAttribute('aria-label') || 'rows';
  const input = make('input', {type: 'search', placeholder: 'filter', className: 'filter'});
  input.setAttribute('aria-label', 'filter ' + name);
  const count = make('span', {className: 'note'});
  count.setAttribute('role', 'status');
  input.oninput = () => {
    const wanted = input.value.toLowerCase();
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += !row.hidden;
    }
    count.textContent = wanted ? ` ${shown} of ${body.rows.length}` : '';
  };
  table.before(make('div', {className: 'tools'}, input, count));
}

function follow() {
  let at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let e = at; e; e = e.parentElement) if (e.tagName == 'DETAILS') e.open = true;
  if (at) at.scrollIntoView();
}

function candidates(figure) {
  const holder = figure.parentElement.querySelector('.data');
  const [sources, origin, searched, times, ...rest] = holder.textContent.split('\n');
  const names = sources.split('\t'), from = origin.split(' ').map(Number);
  const ms = times.split(' ').map(t => t == '-' ? NaN : +t);
  const axes = [
    {name: 'seconds of the search', at: searched.split(' ').map(Number)},
    {name: 'time, ms', at: ms, log: true},
    {name: 'order of measuring', at: ms.map((_, i) => i + 1)},
    ...rest.map(line => {
      const [name, codes, ...levels] = line.split('\t');
      const d = levels.length > 36 ? 2 : 1;
      return {name, levels, at: ms.map((_, i) => parseInt(codes.slice(d * i, d * i + d), 36))};
    }),
  ];
  const plane = figure.querySelector('.plane');
  const [xLabel, yLabel] = ['x', 'y'].map(s => figure.querySelector('.axis.' + s));
  const dots = [...plane.querySelectorAll('path.dots')];
  const lines = [...plane.querySelectorAll('path:not(.dots)')];
  const near = 1.1 * Math.min(...ms.filter(t => t > 0));
  const place = (axis, salt) => {
    const n = axis.levels && axis.levels.length;
    if (n) return {
      of: i => (axis.at[i] + .5 + (i * salt % 97 / 97 - .5) * .6) / n,
      ticks: axis.levels.map((level, i) => [(i + .5) / n, level || 'none']),
    };
    const known = axis.at.filter(v => v > 0 || !axis.log && v == 0);
    const f = axis.log ? Math.log : v => v;
    const low = f(Math.min(...known)), span = f(Math.max(...known)) - low || 1;
    return {
      of: i => .02 + .96 * (f(axis.at[i]) - low) / span,
      ticks: [0, .25, .5, .75, 1].map(p => {
        const v = axis.log ? Math.exp(low + p * span) : low + p * span;
        return [.02 + .96 * p, String(+v.toPrecision(3))];
      }),
    };
  };
  let where = [], told = -1;
  const draw = () => {
    const x = place(axes[selects[0].value], 7919), y = place(axes[selects[1].value], 6007);
    where = ms.map((_, i) => [x.of(i), 1 - y.of(i)]);
    const d = wanted => where.map(([a, b], i) => wanted(i) && a >= 0 && b >= 0 ?
      `M${Math.round(1000 * a)} ${Math.round(1000 * b)}h0` : '').join('');
    names.forEach((_, s) => dots[s].setAttribute('d', d(i => from[i] == s)));
    dots[names.length].setAttribute('d', d(i => ms[i] <= near));
    for (const line of lines) line.style.display = 'none';
    for (const old of plane.querySelectorAll('.tick')) old.remove();
    [[x, 'x', 6], [y, 'y', 9]].forEach(([axis, side, most]) => {
      const stride = Math.ceil(axis.ticks.length / most);
      axis.ticks.forEach(([p, said], i) => {
        if (i % stride) return;
        const tick = make('span', {className: 'tick ' + side, title: said},
          said.length > 9 ? said.slice(0, 8) + '\u2026' : said);
        if (side == 'x') Object.assign(tick.style,
          {left: 100 * p + '%', transform: `translateX(-${100 * p}%)`});
        else tick.style.top = 100 * (1 - p) + '%';
        plane.append(tick);
      });
    });
    xLabel.textContent = axes[selects[0].value].name;
    yLabel.textContent = axes[selects[1].value].name;
    if (told >= 0) tell(told);
  };
  const selects = [0, 1].map(side => {
    const select = make('select', {}, ...axes.map((a, i) => make('option', {value: i}, a.name)));
    select.value = side;
    select.onchange = draw;
    return select;
  });
  const said = make('output', {className: 'note'});
  const point = make('span', {className: 'mark', hidden: true});
  const tell = i => {
    told = i;
    const values = axes.slice(3).filter(a => a.levels[a.at[i]])
      .map(a => `${a.name}: ${a.levels[a.at[i]]}`);
    said.textContent = `${isNaN(ms[i]) ? 'failed' : ms[i] + ' ms'}, from ${names[from[i]]}` +
      (values.length ? `; ${values.join('; ')}` : '');
    const [a, b] = where[i];
    point.hidden = !(a >= 0 && b >= 0);
    Object.assign(point.style, {left: 100 * a + '%', top: 100 * b + '%'});
  };
  const order = ms.map((t, i) => i).filter(i => ms[i] > 0).sort((a, b) => ms[a] - ms[b]);
  let rank = -1;
  plane.tabIndex = 0;
  plane.setAttribute('role', 'group');
  plane.setAttribute('aria-label', 'candidates; arrow keys go from the fastest to slower ones');
  const first = () => { if (!where.length) draw(); };
  plane.onkeydown = event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    first();
    rank = Math.max(0, Math.min(order.length - 1, rank + step));
    tell(order[rank]);
  };
  plane.onclick = event => {
    first();
    const box = plane.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
    let best = -1, least = Infinity;
    where.forEach(([a, b], i) => {
      const far = ((a - x) * box.width) ** 2 + ((b - y) * box.height) ** 2;
      if (far < least) [best, least] = [i, far];
    });
    if (best >= 0) tell(best);
  };
  plane.append(point);
  figure.before(make('div', {className: 'tools'},
    make('label', {}, 'across ', selects[0]), ' ', make('label', {}, 'up ', selects[1])));
  figure.after(said);
}

function enhance(root) {
  for (const table of root.querySelectorAll('table')) { sortable(table); filterable(table); }
  for (const figure of root.querySelectorAll('figure.candidates')) {
    const details = figure.closest('details');
    const once = () => {
      if (!figure.dataset.done) candidates(figure);
      figure.dataset.done = 1;
    };
    if (!details || details.open) once();
    else details.addEventListener('toggle', once, {once: true});
  }
}
enhance(document);
addEventListener('hashchange', follow);
addEventListener('click', event => {
  if (event.target.closest('a[href^="#"]')) setTimeout(follow);
});
if (location.hash) follow();
"""

WATCH = r"""
const state = document.getElementById('state');
const parts = root => [...root.querySelectorAll('main > :not(article), main > article > *')];
let seen = document.querySelector('meta[name=version]').content, shown = [];
async function look() {
  try {
    const answer = await fetch('/', {headers: {'If-None-Match': seen}});
    if (answer.status == 200) {
      const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
      seen = renew(fresh) ? fresh.querySelector('meta[name=version]').content : '';
    }
    state.textContent = 'live';
  } catch {
    state.textContent = 'the server has ended: this is what was last known';
  }
  setTimeout(look, 2000);
}
function renew(fresh) {
  const open = new Set([...document.querySelectorAll('details[open][id]')].map(e => e.id));
  const old = parts(document), made = parts(fresh), same = old.length == made.length;
  const pairs = same ? made.map((e, i) => [old[i], e])
    : [[document.querySelector('main'), fresh.querySelector('main')]];
  if (!same) shown = [];
  let all = true;
  pairs.forEach(([before, after], i) => {
    const text = after.outerHTML;
    if (shown[i] == text) return;
    if (before.contains(document.activeElement)) { all = false; return; }
    if (same) shown[i] = text;
    for (const e of after.querySelectorAll('details[id]')) e.open = e.open || open.has(e.id);
    before.replaceWith(after);
    enhance(after);
  });
  return all;
}
setTimeout(look, 2000);
"""
