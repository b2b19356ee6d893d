"""What API programs are made of: each operation as one line of PyTorch's API, drawn for values that
are there.

A line means the same with ``T`` and ``F`` being ``torch`` and ``torch.nn.functional``, or
``tunegrad`` and ``tunegrad.nn.functional``. What is not continuous (rounding, comparing, sorting)
reads only values that are exact, so that a rounding never becomes another result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.api_fuzzer import Draw, Value

__all__ = ["EXACT", "FAMILIES", "OPERATIONS", "Operation", "Unfit"]

Operation = Callable[["Draw"], str]
FLOAT, INT, BOOL = "float", "int", "bool"
NUMBER = (FLOAT, INT)
ANY = (FLOAT, INT, BOOL)


class Unfit(Exception):
    """No value that is there fits the operation."""


def _unary(method: str, *kinds: str, exact: bool = False) -> Operation:
    def draw(d: Draw) -> str:
        return f"{d.pick(*kinds, exact=exact)}.{method}"

    return draw


def _bounded(method: str) -> Operation:
    """A function that grows fast or has poles, of arguments from -3 to 3."""

    def draw(d: Draw) -> str:
        return f"{_within_three(d)}.{method}"

    return draw


def _within_three(d: Draw) -> str:
    x = d.pick(*NUMBER)
    return f"{x}.clamp({0 if x.dtype == 'uint8' else -3}, 3)"


def _positive(method: str) -> Operation:
    def draw(d: Draw) -> str:
        return f"({d.pick(*NUMBER)}.abs() + 1).{method}"

    return draw


def _functional(call: str) -> Operation:
    def draw(d: Draw) -> str:
        return f"F.{call.format(d.pick(FLOAT))}"

    return draw


def _binary(form: str, *kinds: str, exact: bool = False) -> Operation:
    def draw(d: Draw) -> str:
        a = d.pick(*kinds, exact=exact)
        b = d.beside(a, *kinds, exact=exact)
        return form.format(a, b)

    return draw


def _reduced(method: str, *kinds: str, exact: bool = False, whole: bool = True) -> Operation:
    """Over one dimension, kept or not; some over all."""

    def draw(d: Draw) -> str:
        x = d.pick(*kinds, exact=exact, some=True)
        if whole and d.chance(0.2):
            return f"{x}.{method.format('')}"
        keep = d.choice(["", ", True"])
        return f"{x}.{method.format(f'{d.axis(x)}{keep}')}"

    return draw


def _along(method: str, *kinds: str, exact: bool = False) -> Operation:
    """A method along one dimension."""

    def draw(d: Draw) -> str:
        x = d.pick(*kinds, exact=exact, some=True)
        return f"{x}.{method.format(d.axis(x))}"

    return draw


# ---- elementwise


def _clamp(d: Draw) -> str:
    low, high = d.choice([("-1", "1"), ("None", "0.5"), ("0", "None"), ("-0.5", "None")])
    x = d.pick(*NUMBER)
    return f"{x}.clamp({'0' if x.dtype == 'uint8' else low}, {high})"


def _limited(d: Draw) -> str:
    """Of integers, bounds are rounded towards zero."""
    x = d.pick(*NUMBER, exact=True)
    unsigned = x.dtype == "uint8"
    if d.chance(0.5):
        low = d.choice(["0", "-0.5"] if unsigned else ["-1", "-0.5", "-2.5", "0"])
        return f"F.hardtanh({x}, {low}, 2.5)"
    low = d.choice(["0", "1"] if unsigned else ["-1", "-0.5", "-2.5", "0"])  # -0.5 is refused
    return f"F.threshold({x}, {low}, 1.5)"


def _where(d: Draw) -> str:
    mask = d.pick(BOOL)
    a = d.beside(mask, *NUMBER)
    b = d.beside(mask, *NUMBER, also=a) if d.chance(0.7) else d.choice(["0", "2", "-0.5"])
    return f"T.where({mask}, {a}, {b})"


def _masked_fill(d: Draw) -> str:
    mask = d.pick(BOOL)
    x = d.beside(mask, FLOAT)
    return f"({x} + 0.0).masked_fill({mask}, {d.choice(['0.0', '2.5', '-1.0'])})"


def _hidden(d: Draw) -> str:
    """Minus infinity where a mask holds, and softmax of that."""
    x = d.pick(FLOAT, ranked=True, some=True)
    mask = d.fresh(x.shape, BOOL)
    return f"{x}.masked_fill({mask} & {mask}.any(-1, True), float('-inf')).softmax(-1).nan_to_num()"


def _scalar(d: Draw) -> str:
    x = d.pick(*NUMBER)
    form = d.choice(["{} + 2", "1 - {}", "{} * 3", "{} * 0.5", "{} / 4", "-{}", "{} ** 2"])
    return f"({form.format(x)})"


def _compare(d: Draw) -> str:
    a = d.pick(*NUMBER, exact=True)
    b = d.beside(a, *NUMBER, exact=True) if d.chance(0.6) else d.choice(["0", "1", "0.5"])
    return f"({a} {d.choice(['<', '<=', '>', '>=', '==', '!='])} {b})"


def _cast(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, exact=True, small=True)
    to = ["float32", "float64", "int32", "int64", "int16", "int8", "bool", "float16", "bfloat16"]
    kind = d.choice([*to, "uint8"])
    return f"{x}.to(T.{kind})"


def _divided(d: Draw) -> str:
    a = d.pick(INT)
    by = d.choice([3, 4, 5 if a.dtype == "uint8" else -5])
    return f"({a} {d.choice(['//', '%'])} {by})"


def _shifted(d: Draw) -> str:
    """By numbers, and by a tensor's elements: also by all bits, and by less than none."""
    x = d.pick(INT)
    by = d.choice(["1", "2"]) if d.chance(0.6) else f"({d.beside(x, INT)} & 71)"
    return f"({x} {d.choice(['<<', '>>'])} {by})"


def _remainder(d: Draw) -> str:
    """By a tensor's elements, without 0, and without -1, by which a processor can not divide the
    smallest integer.
    """
    a = d.pick(INT)
    by = f"({d.beside(a, INT)} & 6 | 3)"
    by = f"(-{by})" if d.chance(0.4) else by
    form = d.choice(["{} // {}", "{} % {}", "{}.fmod({})", "{}.div({}, rounding_mode='trunc')"])
    return f"({form.format(a, by)})"


def _same(d: Draw) -> str:
    """What leaves most numbers as they are, or makes 0 or 1 of them: not of NaN and infinities."""
    x = d.pick(*NUMBER)
    forms = ["{0} * 1", "{0} + 0", "{0} - {0}", "{0} * 0", "0 - {0}", "{0} ** 1", "-(-{0})",
             "T.maximum({0}, {0})", "T.where({0} == {0}, {0}, 3)", "({0} != {0})", "{0} + -{0}",
             "T.where({0} < 0, -{0}, {0})", "{0}.clamp({0}, {0})"]  # fmt: skip
    forms += ["{0} * -1"] * (x.dtype != "uint8")
    if x.category == FLOAT:
        forms += ["{0} / {0}", "0 / {0}", "{0} / 1", "{0} ** 0", "{0}.isnan()", "{0}.nan_to_num(7)"]
        forms += ["{0}.abs().sqrt() * 0", "{0}.isfinite()", "{0}.exp() * 0", "F.relu6({0})"]
    return f"({d.choice(forms).format(x)})"


def _widened(d: Draw) -> str:
    """To another type of the same kind: integers wrap around, floats become infinite."""
    x = d.pick(*NUMBER, exact=True)
    kinds = ["float64", "float32", "float16", "bfloat16"]
    kinds = kinds if x.category == FLOAT else ["int64", "int32", "int16", "int8", "uint8"]
    return f"{x}.to(T.{d.choice([*kinds, 'bool'])})"


def _quotient(d: Draw) -> str:
    a = d.pick(*NUMBER)
    return f"{a} / ({d.beside(a, *NUMBER)}.abs() + 1)"


def _added(d: Draw) -> str:
    """Sums with factors, which are integers where the tensors are."""
    a = d.pick(*NUMBER)
    b = d.beside(a, a.category)
    by = d.choice(["2", "3"] if a.category == INT else ["2", "0.5"])
    if d.chance(0.4):
        return f"T.addcmul({a}, {b}, {d.beside(a, a.category, also=b)}, value={by})"
    return f"{a}.{d.choice(['add', 'sub'])}({b}, alpha={by})"


# ---- movement


def _reshape(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, finite=False)
    shape = d.factors(x.size, d.rng.randint(1, 4)) if x.size else (*x.shape, 1)
    return f"{x}.reshape{shape}"


def _permute(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True, finite=False)
    return f"{x}.permute{d.shuffled(range(len(x.shape)))}"


def _transpose(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True, finite=False)
    return f"{x}.transpose({d.axis(x)}, {d.axis(x)})"


def _expand(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, limit=100, finite=False)
    lead = d.choice([(), (2,), (1,)])
    return f"{x}.expand({(*lead, *(d.choice([1, 3]) if s == 1 else s for s in x.shape))})"


def _unsqueeze(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, finite=False)
    return f"{x}.unsqueeze({d.rng.randint(-len(x.shape) - 1, len(x.shape))})"


def _squeeze(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, finite=False)
    return f"{x}.squeeze({d.choice(['', d.axis(x)])})"


def _slice(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True, finite=False)
    keys = []
    for s in x.shape:
        begin = d.rng.randint(0, max(0, s - 1)) if d.chance(0.4) else None
        end = d.rng.randint(begin or 0, s) if d.chance(0.3) else None
        step = d.choice([None, 2, 3]) if d.chance(0.4) else None
        keys.append(":".join("" if k is None else str(k) for k in (begin, end, step)))
    if d.chance(0.3) and x.shape[0]:
        keys[0] = str(d.rng.randrange(-x.shape[0], x.shape[0]))
    if d.chance(0.2):
        keys.insert(d.rng.randint(0, len(keys)), "None")
    return f"{x}[{', '.join(keys)}]"


def _narrow(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True, finite=False)
    at = d.rng.randrange(len(x.shape))
    begin = d.rng.randint(0, x.shape[at])
    return f"{x}.narrow({at}, {begin}, {d.rng.randint(0, x.shape[at] - begin)})"


def _flip(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True, finite=False)
    axes = [a for a in range(len(x.shape)) if d.chance(0.6)] or [0]
    return f"{x}.flip({axes})"


def _roll(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True)
    return f"{x}.roll({d.rng.randint(-3, 3)}, {d.axis(x)})"


def _joined(form: str, many: tuple[int, ...]) -> Operation:
    def draw(d: Draw) -> str:
        x = d.pick(FLOAT, INT, BOOL, ranked=True, limit=120, finite=False)
        at = d.rng.randrange(len(x.shape))
        axis = at if form == "cat" else None
        parts = [str(x), *(d.like(x, axis) for _ in range(d.choice(many) - 1))]
        d.rng.shuffle(parts)
        return f"T.{form}([{', '.join(parts)}], {at})"

    return draw


def _padded_join(d: Draw) -> str:
    """Zeros around joined parts, as a convolution of them has."""
    x = d.pick(FLOAT, INT, rank=(2, 3, 4), some=True, limit=60)
    at = d.rng.randrange(len(x.shape))
    parts = d.shuffled([str(x), *(d.like(x, at) for _ in range(d.choice([1, 1, 2])))])
    widths = tuple(d.choice([0, 1, 1, 2]) for _ in range(2 * d.choice([1, 2])))
    return f"F.pad(T.cat([{', '.join(parts)}], {at}), {widths})"


def _pad(d: Draw) -> str:
    x = d.pick(FLOAT, INT, ranked=True, limit=150)
    widths = []
    for s in reversed(x.shape[-d.rng.randint(1, len(x.shape)) :]):
        widths += [d.choice([0, 1, 2, -1 if s > 2 else 0]), d.choice([0, 0, 1, -1 if s > 2 else 0])]
    number = 1 if x.dtype == "uint8" else d.choice([1, -2])
    value = d.choice(["", "", f", value={number}"])
    return f"F.pad({x}, {tuple(widths)}{value})"


def _pad_mirrored(d: Draw) -> str:
    x, shape = d.fit(3, *NUMBER)
    mode = d.choice(["reflect", "replicate", "circular"])
    most = shape[-1] - 1 if mode == "reflect" else shape[-1]
    widths = (d.rng.randint(0, min(2, most)), d.rng.randint(0, min(3, most)))
    return f"F.pad({x}, {widths}, mode={mode!r})"


def _part(method: str) -> Operation:
    def draw(d: Draw) -> str:
        x = d.pick(FLOAT, INT, BOOL, ranked=True)
        at = d.rng.randrange(len(x.shape))
        return f"{x}.{method}({d.rng.randint(1, 3)}, {at})[0]"

    return draw


def _unfold(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True, some=True, limit=100)
    at = d.rng.randrange(len(x.shape))
    return f"{x}.unfold({at}, {d.rng.randint(1, min(3, x.shape[at]))}, {d.rng.randint(1, 3)})"


def _repeat(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, limit=60, ranked=True, finite=False)
    return f"{x}.repeat{tuple(d.choice([1, 2]) for _ in x.shape)}"


def _repeat_interleave(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, limit=60, ranked=True)
    return f"{x}.repeat_interleave({d.rng.randint(1, 3)}, {d.axis(x)})"


def _triangle(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, rank=(2, 3, 4))
    return f"{x}.{d.choice(['tril', 'triu'])}({d.rng.randint(-2, 2)})"


def _diagonal(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, rank=(2, 3, 4))
    return f"{x}.diagonal({d.rng.randint(-1, 1)}, 0, -1)"


def _pixel_shuffle(d: Draw) -> str:
    x, (a, b, c) = d.fit(3, *NUMBER)
    return f"F.pixel_shuffle(T.cat([{x}] * 4, 0).reshape(1, {a * 4}, {b}, {c}), 2)"


# ---- positions


def _positions(d: Draw, extent: int, shape: tuple[int, ...]) -> Value:
    return d.fresh(shape, INT, below=extent)


def _gather(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True, some=True)
    at = d.rng.randrange(len(x.shape))
    shape = tuple(d.rng.randint(1, s if a != at else 4) for a, s in enumerate(x.shape))
    return f"{x}.gather({at}, {_positions(d, x.shape[at], shape)})"


def _index_select(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, ranked=True, some=True)
    at = d.rng.randrange(len(x.shape))
    return f"{x}.index_select({at}, {_positions(d, x.shape[at], (d.rng.randint(0, 4),))})"


def _indexed(d: Draw) -> str:
    x = d.pick(FLOAT, INT, BOOL, rank=(2, 3, 4), some=True)
    shape = d.choice([(2,), (3,), (2, 2), (1, 3)])
    keys = [":"] * len(x.shape)
    for a in d.rng.sample(range(len(x.shape)), d.choice([1, 1, 2])):
        keys[a] = str(_positions(d, x.shape[a], shape))
    return f"{x}[{', '.join(keys)}]"


def _chosen(d: Draw) -> str:
    """Positions that the program computes."""
    x = d.pick(FLOAT, INT, BOOL, ranked=True, some=True)
    at = d.rng.randrange(len(x.shape))
    key = d.pick(INT, some=True, limit=24)
    return f"{x}.index_select({at}, {key}.reshape(-1).to(T.int64) % {x.shape[at]})"


def _scatter_add(d: Draw) -> str:
    x = d.pick(*NUMBER, ranked=True, some=True, limit=100)
    at = d.rng.randrange(len(x.shape))
    source = d.fresh(x.shape, x.category, dtype=x.dtype)
    return f"{x}.scatter_add({at}, {_positions(d, x.shape[at], x.shape)}, {source})"


def _index_add(d: Draw) -> str:
    x = d.pick(*NUMBER, ranked=True, some=True, limit=100)
    at, n = d.rng.randrange(len(x.shape)), d.rng.randint(1, 4)
    shape = (*x.shape[:at], n, *x.shape[at + 1 :])
    source = d.fresh(shape, x.category, dtype=x.dtype)
    return f"{x}.index_add({at}, {_positions(d, x.shape[at], (n,))}, {source})"


def _index_put(d: Draw) -> str:
    x = d.pick(*NUMBER, ranked=True, some=True, limit=100)
    added, extent = d.rng.random() < 0.5, x.shape[0]
    n = d.rng.randint(1, 4 if added else min(4, extent))
    source = d.fresh((n, *x.shape[1:]), x.category, dtype=x.dtype)
    if added:
        return f"{x}.index_put(({_positions(d, extent, (n,))},), {source}, accumulate=True)"
    # Of equal positions the last one's value stays; PyTorch gives the gradient to all of them.
    apart = f"(T.arange({n}) + {d.rng.randrange(extent)}) % {extent}"
    return f"{x}.index_put(({apart},), {source})"


def _index_reduce(d: Draw) -> str:
    x = d.pick(*NUMBER, ranked=True, some=True, limit=100)
    at, n = d.rng.randrange(len(x.shape)), d.rng.randint(1, 4)
    source = d.fresh((*x.shape[:at], n, *x.shape[at + 1 :]), x.category, dtype=x.dtype)
    fold = d.choice(["amax", "amin"])
    return f"{x}.index_reduce({at}, {_positions(d, x.shape[at], (n,))}, {source}, {fold!r})"


def _masked_scatter(d: Draw) -> str:
    x = d.pick(*NUMBER, ranked=True, some=True, limit=100)
    source = d.fresh((prod(x.shape),), x.category, dtype=x.dtype)
    return f"{x}.masked_scatter({x} > {x}.flip(0), {source})"


def _select_scatter(d: Draw) -> str:
    x = d.pick(*ANY, ranked=True, some=True)
    at = d.rng.randrange(len(x.shape))
    source = d.fresh((*x.shape[:at], *x.shape[at + 1 :]), x.category, dtype=x.dtype)
    return f"{x}.select_scatter({source}, {at}, {d.rng.randrange(x.shape[at])})"


def _slice_scatter(d: Draw) -> str:
    x = d.pick(*ANY, ranked=True, some=True)
    at, step = d.rng.randrange(len(x.shape)), d.rng.randint(1, 3)
    low = d.rng.randint(0, x.shape[at])
    count = len(range(low, x.shape[at], step))
    source = d.fresh((*x.shape[:at], count, *x.shape[at + 1 :]), x.category, dtype=x.dtype)
    return f"{x}.slice_scatter({source}, {at}, {low}, None, {step})"


def _embedding(d: Draw) -> str:
    x = d.pick(*ANY, rank=(2,), some=True)
    return f"F.embedding({_positions(d, x.shape[0], d.choice([(3,), (2, 2), ()]))}, {x})"


def _one_hot(d: Draw) -> str:
    return f"F.one_hot({d.pick(INT, limit=40)}.to(T.int64) % 5, 5)"


# ---- orders


def _topk(d: Draw) -> str:
    x = d.pick(FLOAT, INT, ranked=True, some=True, exact=True)
    at = d.rng.randrange(len(x.shape))
    return f"{x}.topk({d.rng.randint(1, x.shape[at])}, {at}, {d.choice(['True', 'False'])})[0]"


def _sort(d: Draw) -> str:
    x = d.pick(FLOAT, INT, ranked=True, some=True, exact=True)
    way = d.choice(["", ", descending=True"])
    return f"{x}.sort(dim={d.axis(x)}{way}, stable=True)[{d.rng.randint(0, 1)}]"


def _kthvalue(d: Draw) -> str:
    x = d.pick(FLOAT, INT, ranked=True, some=True, exact=True)
    at = d.rng.randrange(len(x.shape))
    return f"{x}.kthvalue({d.rng.randint(1, x.shape[at])}, {at})[0]"


# ---- windows, products, norms


def _convolution(rank: int, transposed: bool = False) -> Operation:
    def draw(d: Draw) -> str:
        x, shape = d.fit(rank + 2, FLOAT, *(() if transposed else (INT,)))
        channels, extents = shape[1], shape[2:]
        groups = channels if channels > 1 and d.chance(0.3) else 1
        pad, dilation = d.rng.randint(0, 2), d.choice([1, 1, 2])
        if 1 in extents:
            dilation = (
                1  # PyTorch 2.13 ends the process: f16, (1, 5, 7, 1) by 1x1, stride 2, padding 1
            )
        size = [d.rng.randint(1, 3) for _ in extents]
        size = [
            k if transposed or (k - 1) * dilation < e + 2 * pad else 1
            for k, e in zip(size, extents, strict=True)
        ]
        stride = d.choice([1, 1, 2])
        out = groups * d.rng.randint(1, 3)
        if transposed:
            lead, pad = (channels, out // groups), 0
        else:
            lead = (out, channels // groups)
        w = d.alike(x, (*lead, *size))
        b = d.alike(x, (out,)) if d.chance(0.5) else "None"
        name = f"conv{'_transpose' if transposed else ''}{rank}d"
        how = f"stride={stride}, padding={pad}, dilation={dilation}, groups={groups}"
        return f"F.{name}({x}, {w}, {b}, {how})"

    return draw


def _pooled(kind: str) -> Operation:
    def draw(d: Draw) -> str:
        x, shape = d.fit(4, FLOAT, INT)
        if kind == "avg" and d.value_of(x).category == INT:
            x += ".to(T.int64)"  # the one type of integers that PyTorch has it for
        size = tuple(d.rng.randint(1, min(3, e)) for e in shape[2:])
        pad = d.rng.randint(0, min(size) // 2)
        more = ", ceil_mode=True" if d.chance(0.3) else ""
        if kind == "avg" and d.chance(0.5):
            more += ", count_include_pad=False"
        return f"F.{kind}_pool2d({x}, {size}, {d.rng.randint(1, 2)}, {pad}{more})"

    return draw


def _adaptive(d: Draw) -> str:
    x, _ = d.fit(4, FLOAT)
    return f"F.adaptive_{d.choice(['avg', 'max'])}_pool2d({x}, {d.choice([1, 2, (2, 3)])})"


def _interpolate(d: Draw) -> str:
    x, _ = d.fit(4, FLOAT)
    mode = d.choice(["nearest", "bilinear", "bicubic", "nearest-exact"])
    if d.chance(0.5):
        size = (d.rng.randint(1, 4), d.rng.randint(1, 4))
        return f"F.interpolate({x}, size={size}, mode={mode!r})"
    return f"F.interpolate({x}, scale_factor=({d.choice([1.0, 1.3, 2.0])}, 1.5), mode={mode!r})"


def _matmul(d: Draw) -> str:
    x, shape = d.fit(d.choice([2, 2, 3]), *NUMBER)
    k = shape[-1]
    other = d.choice([(k, 3), (k,), (1, k, 2)])
    return f"{x} @ {d.alike(x, other)}"


def _self_product(d: Draw) -> str:
    x, _ = d.fit(d.choice([2, 3]), *NUMBER)
    return f"{x} @ {x}.transpose(-1, -2)"


def _linear(d: Draw) -> str:
    x, shape = d.fit(d.choice([1, 2, 3]), *NUMBER)
    w, b = (d.alike(x, s) for s in ((3, shape[-1]), (3,)))
    return f"F.linear({x}, {w}, {b})"


def _added_product(d: Draw) -> str:
    x, (m, k) = d.fit(2, *NUMBER)
    w, b, row = (d.alike(x, s) for s in ((k, 3), (3,), (k,)))
    beta, alpha = d.choice(["1, alpha=2", "3, alpha=1", "2, alpha=3"]).split(", ")
    more = f"beta={beta}, {alpha}"
    if d.chance(0.4):
        return f"T.addmv({d.alike(x, (m,))}, {x}, {row}, {more})"
    return f"T.addmm({b}, {x}, {w}, {more})"


def _einsum(d: Draw) -> str:
    x, shape = d.fit(3, *NUMBER)
    w = d.alike(x, (shape[1], 2))
    return d.choice([f"T.einsum('bij,ik->bkj', {x}, {w})", f"T.einsum('bij->jb', {x})"])


def _outer(d: Draw) -> str:
    a, b = (d.pick(FLOAT, limit=16) for _ in range(2))
    kind = "float64" if "float64" in (a.dtype, b.dtype) else "float32"
    return f"T.outer({a}.reshape(-1).to(T.{kind}), {b}.reshape(-1).to(T.{kind}))"


def _attention(d: Draw) -> str:
    x, shape = d.fit(3, FLOAT, full=True)
    mask = d.fresh((shape[1], shape[1]), BOOL)
    more = d.choice(["", ", is_causal=True", f", attn_mask={mask}"])
    return f"F.scaled_dot_product_attention({x}, {x}.flip(1), {x}{more})"


def _factored(d: Draw) -> str:
    """A factor of matrices near a diagonal one: their columns are independent."""
    x, shape = d.fit(d.choice([2, 3]), FLOAT, full=True)
    m, n = shape[-2:]
    if min(m, n) > 4 or max(m, n) > 9:
        raise Unfit
    near = f"({x}.tanh() * 0.1 + T.eye({m}, {n}) * (T.arange({n}) * 2 + 3))"
    if min(m, n) > 2 or d.chance(0.7):  # SVDs of more take as long as eight programs
        return f"T.linalg.qr({near}).{d.choice('QR')}"
    if d.chance(0.5):
        return f"T.linalg.svdvals({near})"
    return f"(lambda u, s, vh: u @ vh)(*T.linalg.svd({near}, full_matrices=False))"


def _layer_norm(d: Draw) -> str:
    x = d.pick(FLOAT, ranked=True, some=True, full=True)
    n = d.rng.randint(1, len(x.shape))
    shape = x.shape[-n:]
    more = f", {d.fresh(shape, FLOAT, dtype=x.dtype)}" if d.chance(0.5) else ""
    return f"F.layer_norm({x}, {shape}{more}, eps=0.1)"


def _rms_norm(d: Draw) -> str:
    x = d.pick(FLOAT, ranked=True, some=True, full=True)
    return f"F.rms_norm({x}, {x.shape[-1:]}, eps=0.1)"


def _group_norm(d: Draw) -> str:
    x, shape = d.fit(d.choice([3, 4]), FLOAT, full=True)
    if shape[0] * shape[1] == prod(shape):
        raise Unfit
    return f"F.group_norm({x}, {d.choice([1, shape[1]])}, eps=0.1)"


def _batch_norm(d: Draw) -> str:
    x, shape = d.fit(d.choice([2, 3, 4]), FLOAT, full=True)
    m, w = (d.alike(x, shape[1:2]) for _ in range(2))
    return f"F.batch_norm({x}, {m}, {m} * {m} + 1, {w}, {m})"


def _variance(d: Draw) -> str:
    x = d.pick(FLOAT, ranked=True, some=True)
    return f"{x}.{d.choice(['var', 'std'])}({d.axis(x)}, correction=0)"


def _variance_guarded(d: Draw) -> str:
    x = d.pick(FLOAT, ranked=True, some=True)
    return f"{x}.var({d.axis(x)}, correction=0, keepdim=True)"


FAMILIES: dict[str, dict[str, Operation]] = {
    "elementwise": {
        "neg": _unary("neg()", *NUMBER), "abs": _unary("abs()", *NUMBER),
        "square": _bounded("square()"), "relu": _unary("relu()", *NUMBER),
        "tanh": _unary("tanh()", *ANY), "sigmoid": _unary("sigmoid()", *ANY),
        "sin": _unary("sin()", *ANY), "cos": _unary("cos()", *ANY), "erf": _unary("erf()", *ANY),
        "atan": _unary("atan()", *ANY), "exp": _bounded("exp()"), "expm1": _bounded("expm1()"),
        "sinh": _bounded("sinh()"), "log": _positive("log()"), "log2": _positive("log2()"),
        "log1p": _positive("log1p()"), "sqrt": _positive("sqrt()"), "rsqrt": _positive("rsqrt()"),
        "reciprocal": _positive("reciprocal()"), "gelu": _functional("gelu({})"),
        "silu": _functional("silu({})"), "softplus": _functional("softplus({})"),
        "elu": _functional("elu({})"), "leaky_relu": _functional("leaky_relu({})"),
        "hardswish": _functional("hardswish({})"), "mish": _functional("mish({})"),
        "clamp": _clamp, "limited": _limited, "scalar": _scalar, "added": _added,
        "add": _binary("({} + {})", FLOAT, INT),
        "sub": _binary("({} - {})", FLOAT, INT),
        "mul": _binary("({} * {})", FLOAT, INT),
        "maximum": _binary("T.maximum({}, {})", FLOAT, INT),
        "minimum": _binary("T.minimum({}, {})", FLOAT, INT), "quotient": _quotient,
        "hypot": _binary("T.hypot({0} + 0.0, {1} + 0.0)", FLOAT),
        "logaddexp": _binary("T.logaddexp({}, {})", FLOAT),
    },
    "steps": {
        "floor": _unary("floor()", *NUMBER, exact=True),
        "ceil": _unary("ceil()", *NUMBER, exact=True),
        "round": _unary("round()", *NUMBER, exact=True),
        "trunc": _unary("trunc()", *NUMBER, exact=True),
        "sign": _unary("sign()", *NUMBER, exact=True), "compare": _compare, "cast": _cast,
        "divided": _divided, "shifted": _shifted, "remainder": _remainder, "same": _same,
        "widened": _widened,
        "bits": _binary("({} ^ {})", INT, BOOL), "not": _unary("logical_not()", BOOL, INT),
    },
    "masks": {
        "where": _where, "masked_fill": _masked_fill, "hidden": _hidden, "triangle": _triangle,
    },
    "shapes": {
        "reshape": _reshape, "permute": _permute, "transpose": _transpose, "expand": _expand,
        "unsqueeze": _unsqueeze, "squeeze": _squeeze, "flip": _flip, "repeat": _repeat,
        "repeat_interleave": _repeat_interleave, "pixel_shuffle": _pixel_shuffle,
        "diagonal": _diagonal,
    },
    "slices": {
        "slice": _slice, "narrow": _narrow, "chunk": _part("chunk"), "split": _part("split"),
        "unfold": _unfold,
    },
    "joins": {
        "cat": _joined("cat", (2, 2, 3)), "stack": _joined("stack", (2, 3)), "roll": _roll,
        "pad": _pad, "padded_join": _padded_join, "pad_mirrored": _pad_mirrored,
    },
    "positions": {
        "gather": _gather, "index_select": _index_select, "indexed": _indexed, "chosen": _chosen,
        "scatter_add": _scatter_add, "index_add": _index_add, "embedding": _embedding,
        "one_hot": _one_hot, "index_put": _index_put, "index_reduce": _index_reduce,
        "masked_scatter": _masked_scatter, "select_scatter": _select_scatter,
        "slice_scatter": _slice_scatter,
    },
    "reductions": {
        "sum": _reduced("sum({})", FLOAT, INT, BOOL), "mean": _reduced("mean({})", FLOAT),
        "prod": _reduced("clamp(-2, 2).prod({})", FLOAT, whole=False),
        "amax": _reduced("amax({})", *NUMBER, whole=False),
        "amin": _reduced("amin({})", *NUMBER, whole=False),
        "max": _along("max({})[0]", *NUMBER), "argmax": _reduced("argmax({})", *NUMBER, exact=True),
        "argmin": _reduced("argmin({})", *NUMBER, exact=True),
        "all": _reduced("all({})", *ANY, exact=True), "any": _reduced("any({})", *ANY, exact=True),
        "logsumexp": _reduced("logsumexp({})", FLOAT, whole=False), "variance": _variance,
        "norm": _along("norm(2, {})", FLOAT),
        "count_nonzero": _along("count_nonzero({})", *NUMBER, exact=True),
    },
    "orders": {
        "cumsum": _along("cumsum({})", *NUMBER),
        "cumprod": _along("clamp(-1, 1).cumprod({})", FLOAT),
        "cummax": _along("cummax({})[0]", *NUMBER),
        "logcumsumexp": _along("logcumsumexp({})", FLOAT), "sort": _sort,
        "argsort": _along("argsort(dim={}, stable=True)", *NUMBER, exact=True), "topk": _topk,
        "kthvalue": _kthvalue, "median": _along("median({})[0]", FLOAT, INT, exact=True),
        "nanmedian": _along("nanmedian({})[0]", FLOAT, INT, exact=True),
    },
    "windows": {
        "conv1d": _convolution(1), "conv2d": _convolution(2),
        "conv_transpose2d": _convolution(2, True), "max_pool2d": _pooled("max"),
        "avg_pool2d": _pooled("avg"), "adaptive_pool2d": _adaptive, "interpolate": _interpolate,
    },
    "products": {
        "matmul": _matmul, "self_product": _self_product, "linear": _linear, "einsum": _einsum,
        "added_product": _added_product, "outer": _outer, "attention": _attention,
        "factored": _factored,
    },
    "norms": {
        "softmax": _along("softmax({})", FLOAT), "log_softmax": _along("log_softmax({})", FLOAT),
        "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm,
        "batch_norm": _batch_norm, "variance_kept": _variance_guarded,
    },
}  # fmt: skip
"""Operations by family: what an operation is called in counts, and how its line is drawn."""

EXACT = (
    {n for f in ("steps", "shapes", "slices", "joins") for n in FAMILIES[f]} - {"cast", "bits"}
    | {n for f in ("masks", "positions", "orders") for n in FAMILIES[f]}
    - {"hidden", "scatter_add", "index_add", "index_put", "cumsum", "cumprod", "logcumsumexp"}
    - {"one_hot"}
    | {"neg", "abs", "relu", "clamp", "maximum", "minimum", "max_pool2d"}
    | {"amax", "amin", "max", "argmax", "argmin", "all", "any", "count_nonzero"}
)  # fmt: skip
"""Operations whose results are equal to the bit in any library, of NaN, infinities, and the ends of
types, too.
"""

OPERATIONS: dict[str, Operation] = {n: f for ops in FAMILIES.values() for n, f in ops.items()}
