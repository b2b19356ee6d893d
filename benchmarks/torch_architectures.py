"""Architectures of timm and transformers: ``torch.compile``, ``from_torch``, files of ONNX.

    python benchmarks/torch_architectures.py [--only resnet18,t5]
        [--doors compile,from_torch,onnx,f64] [--forms plain,channels_last]
    python benchmarks/torch_architectures.py --table ROWS    the table of rows that were printed
    python benchmarks/torch_architectures.py --time          nothing tuned, beside PyTorch eager

``--time`` takes one thread, and one image of the size that timm gives a network. A time is the
median over turns of the least of each, of the CPU time of the thread that calls and computes:
another process that takes the core lengthens calls, and shortens none. What ``torch.compile`` takes
more than ``tg.load`` is measured outside of the kernels, whose own time differs by more from call
to call. Rows of it are a table by ``--table``, too.

Weights are drawn, nothing is downloaded. Images are small, configurations tiny: the kinds of
operators are those of the full models. One line of JSON each: the door, the memory format, how far
the outputs are from PyTorch's relatively, how far the outputs of the two examples are apart, what
was left to PyTorch, how many graphs dynamo made (one, where nothing breaks it), and the seconds of
it all.

timm imports torchvision for its data pipelines, which are not needed here. Where torchvision is not
installed, an empty module stands for it.
"""

from __future__ import annotations

import argparse
import copy
import importlib.machinery
import importlib.util
import json
import logging
import statistics
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch._dynamo import config as dynamo_config
from torch._dynamo.utils import counters

import tunegrad as tg
import tunegrad.torch
from tunegrad.paired import shift_interval

IMAGES: dict[str, dict[str, Any]] = {
    "resnet18": {}, "resnext26ts": {}, "seresnext26t_32x4d": {}, "regnetx_002": {},
    "regnety_002": {}, "densenet121": {}, "mobilenetv3_small_050": {}, "efficientnet_lite0": {},
    "ghostnet_050": {}, "mnasnet_small": {}, "lcnet_035": {}, "repvgg_a0": {},
    "convnext_atto": {}, "edgenext_xx_small": {}, "mobilevit_xxs": {},
    "vit_tiny_patch16_224": {"img_size": 64}, "deit_tiny_patch16_224": {"img_size": 64},
    "mixer_s32_224": {"img_size": 64}, "swin_tiny_patch4_window7_224": {"img_size": 56},
    "pvt_v2_b0": {},
}  # fmt: skip
"""timm's names, and what they are built with."""

_CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", {"intermediate_size": 64}),
    "distilbert": ("DistilBertConfig", "DistilBertModel", {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 64}),
    "roberta": ("RobertaConfig", "RobertaModel", {"intermediate_size": 64}),
    "electra": ("ElectraConfig", "ElectraModel", {"intermediate_size": 64, "embedding_size": 16}),
    "albert": ("AlbertConfig", "AlbertModel", {"intermediate_size": 64, "embedding_size": 16}),
    "mpnet": ("MPNetConfig", "MPNetModel", {"intermediate_size": 64}),
    "t5": ("T5Config", "T5EncoderModel", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {"intermediate_size": 64}),
    "opt": ("OPTConfig", "OPTForCausalLM", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {"intermediate_size": 64, "num_key_value_heads": 2}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"intermediate_size": 64, "num_key_value_heads": 2}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {"intermediate_size": 64, "num_key_value_heads": 2}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8}),
    "phi": ("PhiConfig", "PhiForCausalLM", {"intermediate_size": 64}),
}  # fmt: skip
"""transformers' configurations and classes; four heads, 32 wide, two deep, 100 words."""

_TINY = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "use_cache": False,
}  # fmt: skip

FORMS = ("plain", "channels_last")

_BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)

Case = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


class _First(torch.nn.Module):
    """A language model as a function of ids, which gives its first output."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(input_ids=ids, return_dict=False)[0]
        return found


def full_image(name: str) -> Case:
    """A model of timm as it is, and one image of its size."""
    _stand_in()
    import timm

    torch.manual_seed(0)
    module = timm.create_model(name).eval()
    return module, (torch.randn(1, *module.default_cfg["input_size"]),)


def image(name: str, options: dict[str, Any], last: bool) -> Case:
    """A model of timm and a batch of two images; ``last``: both in channels_last."""
    _stand_in()
    import timm

    torch.manual_seed(0)
    module = _drawn(timm.create_model(name, num_classes=10, **options).eval())
    size = [options.get("img_size", 64)] * 2
    _with_statistics(module, torch.randn(16, 3, *size))
    x = torch.randn(2, 3, *size)
    if last:
        module, x = (
            module.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
    return module, (x,)


def _drawn(module: torch.nn.Module) -> torch.nn.Module:
    """The module with other numbers where a tensor has one number throughout.

    timm has heads of zeros, and scales of 1e-6 in front of residual branches: nothing that a branch
    computes would be seen. Norms of ones and means of zeros hide where they are read.
    """
    with torch.no_grad():
        for name, t in (*module.named_parameters(), *module.named_buffers()):
            if t.is_floating_point() and t.numel() > 1 and bool((t == t.flatten()[0]).all()):
                t.copy_(0.1 * torch.randn(t.shape))
                t.add_(1.0 if name.endswith(("weight", "running_var")) and t.ndim == 1 else 0.0)
                if name.endswith("running_var"):
                    t.abs_()
    return module


def _with_statistics(module: torch.nn.Module, x: torch.Tensor) -> None:
    """Gives batch norms the statistics of one batch, as training would.

    Behind drawn ones a deep network's outputs hardly depend on its images.
    """
    norms = [m for m in module.modules() if isinstance(m, _BATCH_NORMS)]
    momenta = [m.momentum for m in norms]
    with torch.no_grad():
        for m in norms:
            m.train().momentum = 1.0
        module(x)
    for m, momentum in zip(norms, momenta, strict=True):
        m.eval().momentum = momentum


def language(name: str) -> Case:
    """A tiny model of transformers, and nine ids of two texts."""
    import transformers

    config, model, options = _CONFIGS[name]
    torch.manual_seed(0)
    made = getattr(transformers, config)(**{**_TINY, **options})
    module = _drawn(getattr(transformers, model)(made).eval())
    return _First(module), (torch.randint(3, 99, (2, 9)),)


def compiled(module: torch.nn.Module, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """By ``torch.compile``."""
    torch.compiler.reset()
    counters.clear()
    f = torch.compile(module, backend="tunegrad", options={"store": False})
    return _flat(f(*args))


def exported(module: torch.nn.Module, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """By ``from_torch``."""
    return _arrays(tg.load(tg.from_torch(module, *args), store=False), args)


def by_file(module: torch.nn.Module, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """By PyTorch's export to ONNX."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, tuple(args), str(path), verbose=False)
        return _arrays(tg.load(str(path), store=False), args)


def in_f64(module: torch.nn.Module, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """In PyTorch with 64 bits: how far PyTorch's own results are from those."""
    wide = copy.deepcopy(module).double()
    return _flat(wide(*(a.double() if a.is_floating_point() else a for a in args)))


STEPS = 10
"""Steps of training, with PyTorch's SGD."""


def steps(
    module: torch.nn.Module, args: Sequence[torch.Tensor], ours: bool = True
) -> list[torch.Tensor]:
    """Losses of some steps in train mode, and the weights after them; by ``torch.compile`` where ``ours``."""
    mine = copy.deepcopy(module).train()
    torch.compiler.reset()
    counters.clear()
    f: Any = mine
    if ours:
        f = torch.compile(mine, backend="tunegrad", options={"store": False})
    optimizer = torch.optim.SGD(mine.parameters(), 1e-3, momentum=0.9)
    losses = []
    for i in range(STEPS):
        torch.manual_seed(i)
        optimizer.zero_grad()
        loss = sum(x.square().mean() for x in _flat(f(*args)) if x.is_floating_point())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    weights = torch.cat([p.detach().flatten() for p in mine.parameters()])
    return [torch.stack(losses), weights]


DOORS: dict[str, Callable[..., list[torch.Tensor]]] = {
    "train": steps, "compile": compiled, "from_torch": exported, "onnx": by_file, "f64": in_f64,
}  # fmt: skip


def _flat(value: Any) -> list[torch.Tensor]:
    return [t for v in value for t in _flat(v)] if isinstance(value, list | tuple) else [value]


def _arrays(loaded: Any, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    found = loaded(*(a.numpy() for a in args))
    return [torch.from_numpy(a) for a in (found if isinstance(found, tuple) else (found,))]


class _Said(logging.Handler):
    """Keeps what was left to PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def cases(
    only: Sequence[str], forms: Sequence[str] = FORMS
) -> Iterator[tuple[str, str, Callable[[], Case]]]:
    """Name, memory format, and what makes the case.

    Models of transformers come first: it looks for torchvision, too.
    """
    for name in _CONFIGS:
        if "plain" in forms and (not only or name in only):
            yield name, "plain", lambda n=name: language(n)  # type: ignore[misc]
    for name, options in IMAGES.items():
        for form in forms:
            if not only or name in only:
                last = form == "channels_last"
                yield name, form, lambda n=name, o=options, c=last: image(n, o, c)  # type: ignore[misc]


def run(make: Callable[[], Case], door: str, said: _Said) -> dict[str, Any]:
    """One case through one door."""
    module, args = make()
    said.lines.clear()
    start = time.perf_counter()
    train = door == "train"
    with torch.inference_mode(door == "compile"), torch.set_grad_enabled(train):
        want = steps(module, args, False) if train else _flat(module(*args))
        try:
            got = DOORS[door](module, args)
        except Exception as error:  # noqa: BLE001 - the row says so
            return {"error": f"{type(error).__name__}: {error}"[:300]}
    far = max(
        float((g - w).abs().max() / w.abs().max().clamp(1e-9))
        for g, w in zip(got, want, strict=True)
    )
    left = [line[:200] for line in said.lines if "runs in PyTorch" in line]
    apart = (
        0.0
        if train
        else min(float((w[0] - w[1]).abs().max() / w.abs().max().clamp(1e-30)) for w in want)
    )
    graphs = {"graphs": counters["stats"]["unique_graphs"]}
    return {
        "far": float(f"{far:.2g}"),
        "apart": float(f"{apart:.2g}"),
        "left": left,
        **(graphs if door in ("train", "compile") else {}),
        "seconds": round(time.perf_counter() - start, 1),
    }


FROZEN: dict[str, Any] = {"freezing": True}
"""Options of ``torch.compile`` for weights that stay as they are."""

PROMISES: dict[str, Any] = {
    **FROZEN,
    "check": "error",
    "guard_filter_fn": torch.compiler.keep_portable_guards_unsafe,
}
"""For a module that stays as it is. ``check``, which says its default, keeps this apart: dynamo
leaves the filter out where it compares options, and runs a program without guards for the others.
"""


def timed(make: Callable[[], Case], turns: int = 9, turn_s: float = 0.1) -> dict[str, Any]:
    """Microseconds of a call, in turns: of PyTorch eager and ``tg.load``, tensors in and out, and
    what ``torch.compile`` takes more outside of the kernels: of the module, of its ``forward`` with
    options, and by ``aot_compile`` without guards. ``floor``, ``kept`` and ``bare`` are the parts of
    these that are PyTorch's: what programs take that give what they gave first, behind a call of
    ``tg.load``. ``between`` has the ends of an interval of ``ahead``.
    """
    module, args = make()
    torch.set_num_threads(1)
    torch.compiler.reset()
    kernels = _Kernels()
    loaded = tg.load(tg.from_torch(module, *args), store=False, threads=1)

    def load() -> list[torch.Tensor]:
        return _arrays(loaded, args)

    def compiled_by(backend: Any, **more: Any) -> Callable[[], Any]:
        options = {"store": False, "threads": 1, **more}
        own = copy.deepcopy(module)
        fast = torch.compile(own.forward if more else own, backend=backend, options=options)
        return lambda: fast(*args)

    def ahead_by(remembers: bool) -> Callable[[], Any]:
        options = {"store": False, "threads": 1, **PROMISES}
        own = copy.deepcopy(module)
        fast: Any = torch.compile(own.forward, backend="tunegrad", fullgraph=True, options=options)
        with dynamo_config.patch(install_free_tensors=True):
            made = fast.aot_compile((args, {}))
        made.disable_guard_check()
        if remembers:
            graph = attrgetter("_artifacts.compiled_fn")(made)
            known = graph(*args)
            graph.run = lambda *_: known
        return lambda: made(own, *args)

    calls: dict[str, Callable[[], Any]] = {
        "eager": lambda: module(*args),
        "load": load,
        "compile": compiled_by("tunegrad"),
        "promises": compiled_by("tunegrad", **PROMISES),
        "floor": compiled_by(_remembers),
        "kept": compiled_by(_remembers, **PROMISES),
    }
    least: dict[str, list[tuple[float, float]]] = {}
    with torch.inference_mode():
        calls |= {"ahead": ahead_by(False), "bare": ahead_by(True)}
        for name, call in calls.items():
            call()
            least[name] = []
        for _ in range(turns):
            for name, call in calls.items():
                before = load if name in ("floor", "kept", "bare") else None
                found = _least_s(call, kernels, turn_s, before)
                least[name].append(found)
    beside = {name: [1e6 * b for _, b in found] for name, found in least.items()}
    more = [a - b for a, b in zip(beside["ahead"], beside["load"], strict=True)]
    ratios = [a / b for (a, _), (b, _) in zip(least["eager"], least["load"], strict=True)]
    median = {name: statistics.median(each) for name, each in beside.items()}
    return {
        "ratio": round(statistics.median(ratios), 2),
        "load": round(1e6 * statistics.median(a for a, _ in least["load"]), 1),
        "compile": round(median["compile"] - median["load"], 1),
        "floor": round(median["floor"], 1),
        "promises": round(median["promises"] - median["load"], 1),
        "kept": round(median["kept"], 1),
        "ahead": round(statistics.median(more), 1),
        "between": _ends(more),
        "bare": round(median["bare"], 1),
    }


def _ends(differences: Sequence[float]) -> str:
    """Their interval, in words."""
    _, interval = shift_interval(differences)
    return "" if interval is None else f"{interval[0]:.0f} to {interval[1]:.0f}"


def _remembers(graph: Any, examples: Sequence[Any], **given: Any) -> Any:
    """A backend whose programs give what they gave first: calls take what PyTorch itself takes."""
    compiled, known = tunegrad.torch.backend(graph, examples, **given), list[Any]()

    def run(*args: Any) -> Any:
        if not known:
            known.append(compiled(*args))
        return known[0]

    return run


class _Kernels:
    """Seconds of CPU time that plans of kernels took, of those that are loaded from now on."""

    def __init__(self) -> None:
        from tunegrad.devices.host.team import Teams

        self.seconds = 0.0
        plain: Any = Teams.runner
        made = getattr(plain, "plain", plain)

        def counted(*args: Any) -> Callable[[], None]:
            run = made(*args)

            def timed() -> None:
                start = time.thread_time()
                run()
                self.seconds += time.thread_time() - start

            return timed

        counted.plain = made  # type: ignore[attr-defined]
        Teams.runner = counted  # type: ignore[method-assign]


def _least_s(
    call: Callable[[], Any],
    kernels: _Kernels,
    at_least_s: float,
    before: Callable[[], Any] | None = None,
) -> tuple[float, float]:
    """The least time, and the least one outside of the kernels, of three calls, or as many as fill
    the time; each one behind a call of ``before``.
    """
    found, begin = list[tuple[float, float]](), time.perf_counter()
    while len(found) < 3 or time.perf_counter() - begin < at_least_s:
        if before is not None:
            before()
        kernels.seconds, start = 0.0, time.thread_time()
        call()
        took = time.thread_time() - start
        found.append((took, took - kernels.seconds))
    return min(a for a, _ in found), min(b for _, b in found)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows in Markdown: a model in each line, a door and a memory format in each column; or times."""
    if rows and "door" not in rows[0]:
        heads = {"name": "model", "ratio": "PyTorch eager / `tg.load`", "load": "`tg.load`, us",
                 "compile": "`torch.compile`, us more", "floor": "PyTorch's part",
                 "promises": "`forward`, both options, us more", "kept": "PyTorch's part",
                 "ahead": "`aot_compile`, us more", "between": "interval",
                 "bare": "PyTorch's part"}  # fmt: skip
        cells = [[str(r[k]) for k in heads] for r in rows]
        return "\n".join(
            f"| {' | '.join(c)} |" for c in [[*heads.values()], ["---"] * len(heads), *cells]
        )
    doors = {"compile": "torch.compile", "from_torch": "from_torch", "onnx": "ONNX file",
             "f64": "PyTorch in f64"}  # fmt: skip
    columns = [
        (d, f) for d in doors for f in FORMS if any(_of(rows, r["name"], d, f) for r in rows)
    ]
    lines = ["| model | " + " | ".join(f"{doors[d]}, {f}" for d, f in columns) + " | apart |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for name in dict.fromkeys(r["name"] for r in rows):
        found = [_of(rows, name, d, f) for d, f in columns]
        apart = min((r["apart"] for r in found if "apart" in r), default="")
        cells = [_cell(r) for r in found]
        lines.append(f"| {name} | {' | '.join(cells)} | {apart} |")
    return "\n".join(lines)


def _of(rows: Sequence[dict[str, Any]], name: str, door: str, form: str) -> dict[str, Any]:
    key = (name, door, form)
    return next((r for r in rows if (r["name"], r["door"], r["form"]) == key), {})


def _cell(row: dict[str, Any]) -> str:
    if row.get("left"):
        return "left to PyTorch"
    if row.get("graphs", 1) != 1:
        return f"{row['far']}, {row['graphs']} graphs"
    return str(row.get("far", row.get("error", "not run")))


def _stand_in() -> None:
    """An empty torchvision, where there is none."""
    if importlib.util.find_spec("torchvision") is not None:
        return

    class Empty(types.ModuleType):
        __path__: ClassVar[list[str]] = []

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(
                name,
                (),
                {"BILINEAR": 2, "BICUBIC": 3, "NEAREST": 0, "LANCZOS": 1, "HAMMING": 5, "BOX": 4},
            )

    for name in (
        "",
        ".transforms",
        ".transforms.functional",
        ".datasets",
        ".datasets.folder",
        ".ops",
        ".ops.misc",
    ):
        module = Empty(f"torchvision{name}")
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module
        parent, _, child = module.__name__.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


def main() -> None:
    """Run what the arguments name, a line of JSON each."""
    parser = argparse.ArgumentParser(description="Architectures through every door.")
    parser.add_argument("--only", default="", help="names, with commas between them")
    parser.add_argument("--doors", default=",".join(DOORS))
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--table", type=Path, help="rows that were printed, as a table")
    parser.add_argument("--time", action="store_true", help="beside PyTorch eager")
    given = parser.parse_args()
    if given.table:
        print(table([json.loads(line) for line in given.table.read_text().splitlines()]))
        return
    warnings.simplefilter("ignore")
    said = _Said()
    log = logging.getLogger("tunegrad.torch")
    log.addHandler(said)
    log.propagate = False
    only = [n for n in given.only.split(",") if n]
    if given.time:
        for name in (*_CONFIGS, *IMAGES):
            if not only or name in only:
                row = timed(partial(language if name in _CONFIGS else full_image, name))
                print(json.dumps({"name": name, **row}), flush=True)
        return
    for door in given.doors.split(","):
        for name, form, make in cases(only, given.forms.split(",")):
            row = {"name": name, "form": form, "door": door, **run(make, door, said)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
