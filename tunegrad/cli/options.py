"""The arguments and options that commands share, so that one name means one thing everywhere, and
groups of commands, in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import click

from tunegrad.cli.output import note


class CommandGroup(click.Group):
    """A group that lists its commands in their order: looking first, or the main job."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Every command's name."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; the error of a name that is none names the nearest one and all others."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            names = self.list_commands(ctx)
            near = get_close_matches(args[0], names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            message = f"{error.message.rstrip('.')}.{hint} Commands: {', '.join(names)}."
            raise click.UsageError(message, ctx) from error


model_argument = click.argument("model", metavar="MODEL")

models_argument = click.argument("models", metavar="MODEL...", nargs=-1, required=True)

device_option = click.option(
    "--device",
    metavar="NAME",
    help="Device: cpu, opencl, cuda; cuda:1 or cuda: and a part of its name, and so for opencl; "
    "null:sm_90a only compiles.  [default: cpu]",
)


def _some_threads(_ctx: click.Context, _param: click.Parameter, value: int | None) -> int | None:
    """Warn where there are more threads than CPUs: they take turns."""
    if value is not None:
        from tunegrad.config import MOST_THREADS, usable_cpus

        if MOST_THREADS >= value > (cpus := usable_cpus()):
            note(
                f"warning: {value} threads on {cpus} CPU{'s' if cpus != 1 else ''} take turns: "
                "kernels are slower than with fewer, and what is tuned is for so many threads only"
            )
    return value


threads_option = click.option(
    "--threads",
    type=int,
    metavar="N",
    callback=_some_threads,
    help="CPU threads.  [default: the CPUs this process may use]",
)

store_option = click.option(
    "--store",
    metavar="PATH",
    help="The store's file.  [default: $TUNEGRAD_STORE, or tunegrad/store.db in $XDG_DATA_HOME]",
)

seed_option = click.option(
    "--seed", type=int, metavar="N", help="Seed of every random choice, weights too.  [default: 0]"
)

numerics_option = click.option(
    "--numerics",
    metavar="MODE",
    default="contract",
    help="strict; contract, which allows Winograd convolutions, within the stated tolerance; "
    "bf16-dot, which also "
    "sums products of bf16 tensors in pairs, as --dtype bf16 does unless it is strict; or tf32, "
    "which also rounds the factors of f32 products to 11 binary digits where the device has a "
    "matrix unit for such.  "
    "[default: contract]",
)

dtype_option = click.option(
    "--dtype",
    metavar="TYPE",
    help="Type of stored weights and activations: f16 or bf16; sums, norms and softmax stay in "
    "f32, inputs and outputs as they are; where the processor multiplies bf16 pairs (AVX512_BF16, "
    "AMX), products of bf16 are summed in pairs unless --numerics strict. int8: the model in bytes "
    "that tune --calibrate made.  "
    "[default: f32, the model as it is]",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on stdout, and nothing else there."
)

batch_option = click.option(
    "--batch", type=click.IntRange(1), metavar="N", help="Batch of the model.  [default: its own]"
)

set_option = click.option(
    "--set",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of the model, as in image=128; of an ONNX file an extent, a shape or a value "
    "of an input (n=8, x.1=8, x=1x3x8, rate=16000); several times for several.",
)


_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _together(*options: _Decorator) -> _Decorator:
    """One decorator of several, whose help has them in this order."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


model_options = _together(model_argument, batch_option, set_option)
"""One model, and its arguments: ``with_arguments`` makes its whole name of the three."""

place_options = _together(device_option, threads_option, store_option)

dtype_options = _together(numerics_option, dtype_option)


def with_arguments(model: str, batch: int | None, arguments: tuple[str, ...]) -> str:
    """A model's name with what ``--batch`` and ``--set`` say: ``resnet18[batch=8,image=128]``."""
    said = [*([] if batch is None else [f"batch={batch}"]), *arguments]
    if not said:
        return model
    if model.endswith("]"):
        return f"{model[:-1]},{','.join(said)}]"
    return f"{model}[{','.join(said)}]"


def example(*lines: str) -> str:
    """The epilog of a command's help: command lines that work as they stand."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def age_s(value: str, option: str) -> float:
    """Seconds of an age, as people write it: 12h, 30d, 8w.

    Raises BadParameter, which names the option, for any other text.
    """
    from tunegrad.config import parse_duration

    seconds = parse_duration(value)
    if seconds is None:
        raise click.BadParameter(
            f"{value!r} is not an age such as 12h, 30d or 8w", param_hint=f"'{option}'"
        )
    return seconds
