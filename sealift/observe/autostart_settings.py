"""What SEALIFT_OBSERVE says: "1", or settings joined by commas: "sampling=0.01,duty_cycle=0.1,sink=otlp:http://localhost:4318"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from sealift.observe.sinks.sink import SinkFactory, SinkSpecError
from sealift.observe.sinks.spec import FORMS, parse_sink

OFF = ("", "0", "off")
ON = ("1", "on")
EVERY = ("operator", "burst", "step")


@dataclass(frozen=True)
class Settings:
    """None: the recorder's own default."""

    every: str = "operator"
    sampling: float | None = None  # probability that a call is recorded while the recorder listens
    duty_cycle: float | None = None  # share of the time in which it listens
    budget: float | None = None  # share of the running time that recording may cost; 0: no limit
    bursts: float | None = None  # with every=operator: share of the time in which all operators are recorded besides, for self times and traces
    shapes: bool = False  # tell calls with other input shapes apart
    labels: tuple[str, ...] = ()  # keys of the debug info that tell series apart
    interval_s: float = 10.0
    sinks: tuple[str, ...] = ("table",)

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Error: SinkSpecError, which lists what is known."""
        settings, sinks = cls(), list[str]()
        for word in filter(None, text.strip().split(",")):
            name, _, value = word.partition("=")
            if word in ON:
                continue
            if name == "sink":
                sinks.append(parse_sink(value.replace("%2C", ","))[0])
            elif name in _READERS:
                field, read = _READERS[name]
                settings = replace(settings, **{field: read(name, value)})  # type: ignore[arg-type]
            else:
                raise SinkSpecError(f"{word!r} is no setting; help: {HELP}")
        return replace(settings, sinks=tuple(sinks)) if sinks else settings

    def __str__(self) -> str:
        """What parse() reads back."""
        words = []
        for name, (field, _) in _READERS.items():
            value = getattr(self, field)
            if value != next(f.default for f in fields(self) if f.name == field):
                words.append(f"{name}={'+'.join(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value}")
        return ",".join([*words, *(f"sink={s.replace(',', '%2C')}" for s in self.sinks)])

    def factories(self) -> dict[str, SinkFactory]:
        return dict(parse_sink(spec) for spec in self.sinks)


def _fraction(name: str, text: str) -> float:
    number = _number(name, text)
    may_be_zero = name in ("budget", "bursts")
    if name == "budget" and number == 1:
        raise SinkSpecError("budget=1 is all of the time; help: below 1, or 0 for no limit")
    if not 0 <= number <= 1 or (number == 0 and not may_be_zero):
        raise SinkSpecError(f"{name}={text}; help: from 0 to 1" + ("" if may_be_zero else ", and above 0"))
    return number


def _seconds(name: str, text: str) -> float:
    number = _number(name, text)
    if not 0.01 <= number <= 86400:
        raise SinkSpecError(f"{name}={text}; help: seconds, from 0.01 to 86400")
    return number


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SinkSpecError(f"{name}={text!r} is no number") from None


def _every(name: str, text: str) -> str:
    if text not in EVERY:
        raise SinkSpecError(f"{name}={text}; help: one of {', '.join(EVERY)}")
    return text


def _flag(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise SinkSpecError(f"{name}={text}; help: 0 or 1")
    return text == "1"


def _labels(name: str, text: str) -> tuple[str, ...]:
    labels = tuple(filter(None, text.split("+")))
    if not labels:
        raise SinkSpecError(f"{name}={text!r} names none; help: {name}=tenant+phase")
    return labels


_READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "every": ("every", _every),
    "sampling": ("sampling", _fraction),
    "duty_cycle": ("duty_cycle", _fraction),
    "budget": ("budget", _fraction),
    "bursts": ("bursts", _fraction),
    "shapes": ("shapes", _flag),
    "labels": ("labels", _labels),
    "interval": ("interval_s", _seconds),
}
HELP = f"1, or {', '.join(f'{name}=...' for name in _READERS)}, sink=SINK, joined by commas; sinks are {', '.join(FORMS)}"
