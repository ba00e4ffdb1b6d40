"""Choices that lie in other packages: how they are registered, found, allowed and recorded.

A plugin is the settings section of a connection, mixer, aggregation, fusion, initialisation, optimizer or
schedule, or what makes a metric. A run file names it in three ways: by a name that an installed package
announces as an entry point of the group ``deepwire.plugins`` (``connection.highway =
"my_package:HighwayConfig"``), by a name that `register_connection` and its like were called for, or by its
place: ``type: my_package.HighwayConfig``.

A model folder only ever holds names. Code is imported for them if the user allowed the package: by installing
it with entry points, with ``--plugin`` or `use`, or in a run file to train. This module imports
no torch, and no plugin unless it is asked for.
"""

from __future__ import annotations

import importlib.util
import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions
from importlib.metadata import version as distribution_version
from typing import Literal, TypeVar, get_args, overload

from deepwire.errors import ModelError, UsageError

GROUP = "deepwire.plugins"
Kind = Literal[
    "connection", "mixer", "aggregation", "fusion", "initialization", "optimizer", "schedule", "metric"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")  # of a choice: my_package.MyConfig
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
SectionT = TypeVar("SectionT", bound=type)
MakeT = TypeVar("MakeT", bound=Callable[..., object])


class PluginError(ValueError):
    """A plugin cannot be used; the text says why, and is shown beside the setting that names it."""


@dataclass(frozen=True)
class Plugin:
    """A choice of another package.

    Attributes:
        kind: What it is a choice of.
        name: As a run file names it: a registered name, or the place ``my_package.HighwayConfig``.
        package: The importable package that it is in.
        version: That of the distribution which brought the package; empty where there is none.
        place: Where it is in the package: ``my_package.HighwayConfig``.
    """

    kind: Kind
    name: str
    package: str
    version: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of package {self.package}{self.version and f' {self.version}'}"

    def to_json(self) -> dict[str, str]:
        """For the record of a model."""
        return asdict(self)


_registered: dict[Kind, dict[str, object]] = defaultdict(dict)
OWN_METRICS = frozenset({"bleu", "chrf", "chrf++", "ter", "multi-bleu", "spbleu", "spbleu-101"})
"""The names of `deepwire.evaluation.metric_choice`; those of other kinds are noted by `reserve`."""
_own: dict[Kind, frozenset[str]] = defaultdict(frozenset, {"metric": OWN_METRICS})
_allowed: set[str] = set()


def _registrar(kind: Kind, base: str) -> Callable[[SectionT], SectionT]:
    def register(section: SectionT) -> SectionT:
        tag = getattr(getattr(section, "model_fields", {}).get("type"), "default", None)
        if not isinstance(tag, str):
            raise UsageError(
                f"plugin {_place(section)}: a {kind} needs settings with a type of their own",
                'give its section type: Literal["its_name"] = "its_name"',
            )
        _add(kind, tag, section)
        return section

    register.__name__ = register.__qualname__ = f"register_{kind}"
    register.__doc__ = f"""Make a {kind} known by the ``type`` of its settings, `{base}`; also as a decorator.

    Raises:
        UsageError: It has no ``type``, or its name is taken. A name of deepwire's own is refused at the
            latest when a choice of the kind is made, as nothing heavy is imported here.
    """
    return register


register_connection = _registrar("connection", "ConnectionSection")
register_mixer = _registrar("mixer", "MixerSection")
register_aggregation = _registrar("aggregation", "AggregationSection")
register_fusion = _registrar("fusion", "FusionSection")
register_initialization = _registrar("initialization", "Initialization")
register_optimizer = _registrar("optimizer", "OptimizerSection")
register_schedule = _registrar("schedule", "ScheduleSection")


@overload
def register_metric(name: str) -> Callable[[MakeT], MakeT]: ...
@overload
def register_metric(name: str, make: MakeT) -> MakeT: ...
def register_metric(name: str, make: MakeT | None = None) -> MakeT | Callable[[MakeT], MakeT]:
    """Make a metric known by a name; also as a decorator, ``@register_metric("my_metric")``.

    Args:
        name: As ``--metric`` and ``training.validation.metrics`` have it; it ends no run, nor chooses one.
        make: Gives a `Metric` for `MetricOptions`; default: the function that is decorated.

    Returns:
        `make`, or the decorator.

    Raises:
        UsageError: The name is taken, or is no name.
    """
    _require_name("metric", name)
    if make is None:
        return lambda chosen: register_metric(name, chosen)
    _add("metric", name, make)
    return make


def use(package: str) -> None:
    """Allow a package and import it, so that it can register its choices; as ``--plugin`` does.

    Raises:
        UsageError: It cannot be imported.
    """
    allow(package)
    try:
        _imported(package)
    except PluginError as error:
        raise UsageError(f"plugin {error}") from error.__cause__


def allow(package: str) -> None:
    """Let names that files give import code of this package, such as ``my_package``, from now on."""
    _allowed.add(_package(package))


def reserve(kind: Kind, names: Sequence[str]) -> None:
    """Note the names that are deepwire's own.

    Raises:
        UsageError: One of them was registered by a plugin.
    """
    _own[kind] = frozenset(names)
    for name in _registered[kind]:
        _refuse_own(kind, name)


def find(kind: Kind, name: str, *, trusted: bool = False) -> object | None:
    """The choice of another package under a name; None if no package has one.

    Args:
        kind: What it is a choice of.
        name: A registered name, that of an entry point, or a place ``package.Name``.
        trusted: Whether the user wrote the name: then the package of a place is allowed from now on.

    Raises:
        PluginError: It cannot be imported, is not there, or its package is not allowed.
    """
    if name in _registered[kind]:
        return _registered[kind][name]
    if entries := _announced().get((kind, name)):
        if len(entries) > 1:
            places = " and ".join(sorted(map(_place, entries)))
            raise PluginError(f"{kind} {name}: both {places} have this name; write the one that you mean")
        _registered[kind][name] = _loaded(_place(entries[0]))
    elif PLACE.fullmatch(name):
        package = _package(name)
        if trusted:
            allow(package)
        if not _is_allowed(package):
            raise PluginError(
                f"code of the package {package} is not imported because a file names it: only training does, "
                f"and --plugin {package}"
            )
        _registered[kind][name] = _loaded(name)
    return _registered[kind].get(name)


def names(kind: Kind) -> tuple[str, ...]:
    """The names by which choices of other packages are known; nothing is imported."""
    # Names of deepwire's own may have been noted since the entry points were read.
    announced = [name for of, name in _announced() if of == kind and name not in _own[kind]]
    return tuple(dict.fromkeys([*_registered[kind], *announced]))


def known() -> tuple[Plugin, ...]:
    """All choices of other packages; nothing is imported."""
    return tuple(describe(kind, name) for kind in KINDS for name in sorted(names(kind)))


def describe(kind: Kind, name: str, choice: object | None = None) -> Plugin:
    """Where a choice of another package comes from; `choice` is what is used under the name, if it is."""
    choice = choice or _registered[kind].get(name) or next(iter(_announced().get((kind, name), ())), None)
    place = name if choice is None else _place(choice)
    return Plugin(kind, name, _package(place), _version(_package(place)), place)


def _is_allowed(package: str) -> bool:
    """Whether the user allowed a package, or installed it with entry points."""
    announced = (entry for entries in _announced().values() for entry in entries)
    return package in _allowed or any(_package(entry.module) == package for entry in announced)


def check_recorded(recorded: object, where: str) -> None:
    """Check that the parts of a stored model are here and allowed, and make them known by their names.

    Args:
        recorded: The list of what `Plugin.to_json` gave for each of its plugins; None without any.
        where: What messages call the model.

    Raises:
        ModelError: A package is missing or not allowed, or has no such choice.
    """
    for entry in recorded if isinstance(recorded, list) else []:
        plugin = _recorded(entry, where)
        kind, name = plugin.kind, plugin.name
        try:
            if name not in _registered[kind] and len(_announced().get((kind, name), ())) != 1:
                _require_allowed(plugin, where)
                _registered[kind][name] = _loaded(plugin.place)
            find(kind, name)
        except PluginError as error:
            raise ModelError(f"{where}: needs the {plugin}, but {error}") from error


def _require_allowed(plugin: Plugin, where: str) -> None:
    package = plugin.package
    if package == "__main__" or importlib.util.find_spec(package) is None:
        raise ModelError(
            f"{where}: needs the {plugin}, which is not installed",
            f"install the package {package}, or add its folder to PYTHONPATH and --plugin {package}",
        )
    if not _is_allowed(package):
        raise ModelError(
            f"{where}: needs the {plugin}, whose code is not imported because a model names it",
            f"if you trust it, add --plugin {package}, or call deepwire.plugins.use({package!r})",
        )


def _recorded(entry: object, where: str) -> Plugin:
    told = entry if isinstance(entry, Mapping) else {}
    fields = {key: str(told.get(key, "")) for key in ("kind", "name", "package", "version", "place")}
    sound = fields["package"].isidentifier() and _package(fields["place"]) == fields["package"]
    if not sound or fields["kind"] not in KINDS:
        raise ModelError(f"{where}: its record of plugins is damaged")
    return Plugin(**fields)  # type: ignore[arg-type]  # of a known kind


def _require_name(kind: Kind, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"plugin {kind} {name!r}: a name has small letters, digits, _ and - alone")


def _add(kind: Kind, name: str, choice: object) -> None:
    _require_name(kind, name)
    _refuse_own(kind, name)
    before = _registered[kind].setdefault(name, choice)
    if _place(before) != _place(choice):  # the same place where a module is imported anew
        raise UsageError(f"plugin {kind} {name}: both {_place(before)} and {_place(choice)} have this name")
    _registered[kind][name] = choice


def _refuse_own(kind: Kind, name: str) -> None:
    if name in _own[kind]:
        raise UsageError(f"plugin {kind} {name}: deepwire has a {kind} of this name", "give yours another")


def _package(module: str) -> str:
    return module.partition(".")[0]


def _place(choice: object) -> str:
    if isinstance(choice, EntryPoint):
        return choice.value.replace(":", ".")
    name = getattr(choice, "__qualname__", None)
    return repr(choice) if name is None else f"{getattr(choice, '__module__', '?')}.{name}"


@cache
def _announced() -> Mapping[tuple[str, str], Sequence[EntryPoint]]:
    """The entry points of installed packages by kind and name; several where packages chose the same."""
    announced: dict[tuple[str, str], dict[str, EntryPoint]] = defaultdict(dict)
    for entry in entry_points(group=GROUP):
        kind, _, name = entry.name.partition(".")
        if kind in KINDS and name not in _own[kind]:
            announced[kind, name].setdefault(entry.value, entry)
    return {key: list(entries.values()) for key, entries in announced.items()}


def _loaded(place: str) -> object:
    module, _, name = place.rpartition(".")
    try:
        return getattr(_imported(module), name)
    except AttributeError:
        raise PluginError(f"{module} has no {name}") from None


def _imported(module: str) -> object:
    """Import a module of another package; whatever is wrong in it becomes one line that says where."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}"
        _, *frames = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame in frames if "importlib" not in frame.filename]
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            text = f"{error}; is it installed, or its folder on PYTHONPATH?"
        elif frames and not isinstance(error, SyntaxError):
            text = f"{text} ({frames[-1].filename}:{frames[-1].lineno})"
        raise PluginError(f"{module} cannot be imported: {' '.join(text.split())}") from error


def _version(package: str) -> str:
    try:
        return distribution_version(_distributions().get(package, [package])[0])
    except PackageNotFoundError:
        return ""


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()
