"""The schema of a table of clicks: which columns there are and how each is encoded; read from YAML."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from recsys.errors import ConfigError
from recsys.prepare.yaml_kinds import UniqueKeys, check_kinds

# Functions of a number; "standardize" is fitted on the train rows and comes last.
POINTWISE = ("signed_log", "shifted_log", "log_square", "log_bins")
STANDARDIZE = "standardize"
# The ones that give whole numbers, for a number used as a category.
BUCKETS = ("log_square", "log_bins")
# Names of the columns of a part that are not features.
RESERVED = ("label", "weight", "row", "group", "time")
MAX_TABLE = 2**31 - 1
FLOAT32_MAX = (2 - 2**-23) * 2.0**127

_T = TypeVar("_T")


@dataclass(frozen=True)
class DenseColumn:
    """A numeric feature.

    Attributes:
        name: of the feature; unique in the schema.
        column: of the input; None is ``name``.
        transform: names of :data:`POINTWISE` and at the end perhaps :data:`STANDARDIZE`, applied in order; [] keeps
            the value.
        shift: ``shifted_log`` is ``log(max(x + shift, 1))``.
        missing: ``mean`` (of the train rows, after the transform), ``error``, or a number that takes the place of
            the missing value before the transform.
        indicator: adds a dense feature ``<name>_missing`` of 0 and 1.
    """

    name: str
    column: str | None = None
    transform: tuple[str, ...] = ("signed_log", STANDARDIZE)
    shift: float = 1.0
    missing: str | float = "mean"
    indicator: bool = False

    @property
    def source(self) -> str:
        """Name of the input's column."""
        return self.column or self.name

    @property
    def pointwise(self) -> tuple[str, ...]:
        """The transforms that need no fit."""
        return tuple(name for name in self.transform if name != STANDARDIZE)


@dataclass(frozen=True)
class CategoricalColumn:
    """A categorical feature with one value a row, or a list of values.

    Ids are 0 for out-of-vocabulary values, 1 for missing ones, then the vocabulary by falling count, then the hash
    buckets.

    Attributes:
        name: of the feature; unique in the schema.
        column: of the input; None is ``name``.
        min_count: values seen less often in the train rows are out of vocabulary; None makes no vocabulary.
        max_size: keeps only so many values, the most frequent; None keeps all.
        hash_size: out-of-vocabulary values share so many buckets instead of the id 0; None makes no buckets.
        missing: ``id`` (1), ``oov`` (0) or ``error``.
        transform: makes a number a category: one of :data:`BUCKETS`, or None.
        separator: cuts a text into a list (multi-hot columns only).
        max_length: longer lists lose their end (multi-hot columns only); None is the longest of the train rows.
        target_mean: adds the dense feature ``<name>_target_mean``; see :mod:`recsys.prepare.target_mean`.
        count: adds the dense feature ``<name>_count``.
        smoothing: rows at the click rate that every target mean starts from.
    """

    name: str
    column: str | None = None
    min_count: int | None = 1
    max_size: int | None = None
    hash_size: int | None = None
    missing: str = "id"
    transform: str | None = None
    separator: str | None = None
    max_length: int | None = None
    multi_hot: bool = False
    target_mean: bool = False
    count: bool = False
    smoothing: float = 20.0

    @property
    def adds_dense(self) -> bool:
        """Whether the column adds dense features."""
        return self.target_mean or self.count

    @property
    def source(self) -> str:
        """Name of the input's column."""
        return self.column or self.name


@dataclass(frozen=True)
class CsvFormat:
    """How a delimited text file is written.

    Attributes:
        delimiter: one character, or ``tab``.
        header: whether the first line names the columns; if not, ``columns`` does.
        columns: names in order, for files without a header.
        quote: whether fields may stand in double quotes; quoted line breaks are refused.
        null_values: texts that mean a missing value.
    """

    delimiter: str = ","
    header: bool = True
    columns: tuple[str, ...] = ()
    quote: bool = True
    null_values: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class Schema:
    """Columns of the input and the features made of them.

    Attributes:
        label: column of 0 and 1; empty where rows are not labelled (see :meth:`for_scoring`).
        weight, group, time: columns of sample weights, of ids to group rows by, and of times; None if there is none.
        dense: numeric features.
        categorical: categorical features, those with lists (``multi_hot``) after the others.
        csv: the format of text files.
    """

    label: str
    dense: tuple[DenseColumn, ...] = ()
    categorical: tuple[CategoricalColumn, ...] = ()
    weight: str | None = None
    group: str | None = None
    time: str | None = None
    csv: CsvFormat = field(default_factory=CsvFormat)

    @property
    def sources(self) -> list[str]:
        """Names of the input's columns that are read, each once, label first."""
        roles = [self.label, self.weight, self.group, self.time]
        features = [*(c.source for c in self.dense), *(c.source for c in self.categorical)]
        return list(dict.fromkeys(name for name in [*roles, *features] if name))

    def for_scoring(self, *, labelled: bool = False) -> Schema:
        """The same without the columns that a prediction does not need; with ``labelled`` label and weight stay."""
        label, weight = (self.label, self.weight) if labelled else ("", None)
        return replace(self, label=label, weight=weight, group=None, time=None)

    def with_min_count(self, min_count: int | None) -> Schema:
        """The same with one minimum count for every vocabulary; None changes nothing."""
        if min_count is None:
            return self
        columns = (c if c.min_count is None else replace(c, min_count=min_count) for c in self.categorical)
        return check(replace(self, categorical=tuple(columns)), "min_count")

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON, equal for equal schemas."""
        plain = asdict(self)
        # As before these keys came: data prepared without them is still what was asked for.
        defaults = asdict(CategoricalColumn(""))
        for column in plain["categorical"]:
            for key in ("target_mean", "count", "smoothing"):
                if column[key] == defaults[key]:
                    del column[key]
        return plain


def schema_from_plain(plain: dict[str, Any]) -> Schema:
    """The schema that :meth:`Schema.to_plain` gave."""
    columns: dict[str, Any] = {
        "dense": tuple(DenseColumn(**(c | {"transform": tuple(c["transform"])})) for c in plain["dense"]),
        "categorical": tuple(CategoricalColumn(**c) for c in plain["categorical"]),
        "csv": _csv_format(plain["csv"]),
    }
    return Schema(**(plain | columns))


def read_schema(path: Path) -> Schema:
    """Read a YAML schema (docs/data.md explains the keys).

    Raises:
        ConfigError: the file is missing or not YAML; an unknown key, a wrong value, two features of one name.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), UniqueKeys)
    except FileNotFoundError:
        raise ConfigError(f"schema={path}: no such file; `infer-schema FILE` proposes one") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from error
    return parse_schema(raw, str(path))


def parse_schema(raw: Any, place: str) -> Schema:
    """Make a schema of what YAML gave; errors begin with ``place``."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{place}: a schema is a mapping with the keys label, dense, categorical, multi_hot ...")
    valid = ["label", "weight", "group", "time", "dense", "categorical", "multi_hot", "csv"]
    _check_keys(raw, valid, place)
    check_kinds({k: v for k, v in raw.items() if k in ("weight", "group", "time")}, f"{place}: ")
    if not isinstance(raw.get("label"), str):
        raise ConfigError(f"{place}: label: the name of the column of 0 and 1 is needed")
    dense = [
        replace(c, transform=_as_names(c.transform, f"{place}: dense.{c.name}.transform"))
        for c in _columns(DenseColumn, raw.get("dense"), f"{place}: dense")
    ]
    categorical = _columns(CategoricalColumn, raw.get("categorical"), f"{place}: categorical")
    lists = [
        replace(c, multi_hot=True) for c in _columns(CategoricalColumn, raw.get("multi_hot"), f"{place}: multi_hot")
    ]
    schema = Schema(
        label=raw["label"],
        dense=tuple(dense),
        categorical=(*categorical, *lists),
        csv=_csv(raw.get("csv") or {}, f"{place}: csv"),
        **{role: raw.get(role) for role in ("weight", "group", "time")},
    )
    return check(schema, place)


def check(schema: Schema, place: str) -> Schema:
    """Refuse a schema that cannot be carried out."""
    names = feature_names(schema)
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ConfigError(f"{place}: two features are named {twice[0]!r}; give one another name and keep its `column`")
    if taken := [n for n in names if n in RESERVED]:
        raise ConfigError(
            f"{place}: a feature cannot be named {taken[0]!r}, which the output uses; write "
            f"{{name: {taken[0]}_feature, column: {taken[0]}}}"
        )
    if not names:
        raise ConfigError(f"{place}: there is no feature; list columns under dense, categorical or multi_hot")
    if schema.label in {*(c.source for c in schema.dense), *(c.source for c in schema.categorical)}:
        raise ConfigError(f"{place}: the label {schema.label!r} is a feature too; remove it from the features")
    for dense in schema.dense:
        _check_dense(dense, f"{place}: dense.{dense.name}")
    for column in schema.categorical:
        _check_categorical(column, f"{place}: {'multi_hot' if column.multi_hot else 'categorical'}.{column.name}")
    return schema


def feature_names(schema: Schema) -> list[str]:
    """Names of all features of the output, missing indicators included."""
    indicators = [f"{c.name}_missing" for c in schema.dense if c.indicator]
    added = [name for c in schema.categorical for name in added_names(c)]
    return [*(c.name for c in schema.dense), *indicators, *added, *(c.name for c in schema.categorical)]


def added_names(column: CategoricalColumn) -> list[str]:
    """Names of the dense features that a categorical column adds, in order."""
    wanted = [("target_mean", column.target_mean), ("count", column.count)]
    return [f"{column.name}_{suffix}" for suffix, is_wanted in wanted if is_wanted]


def nearest(name: str, valid: Sequence[str]) -> str:
    """The valid names to tell the user who wrote ``name``."""
    near = difflib.get_close_matches(name, valid, n=3, cutoff=0.5)
    return f"nearest: {', '.join(near)}" if near else f"valid: {', '.join(valid[:20])}"


def _check_keys(raw: dict[Any, Any], valid: Sequence[str], place: str) -> None:
    for key in raw:
        if key not in valid:
            raise ConfigError(f"{place}: there is no key {key!r}; {nearest(str(key), valid)}")


def _columns(kind: type[_T], raw: Any, place: str) -> list[_T]:
    if not isinstance(raw or [], list):
        raise ConfigError(f"{place}: give a list of columns")
    return [column for entry in raw or [] for column in _entry(kind, entry, place)]


def _entry(kind: type[_T], entry: Any, place: str) -> Iterable[_T]:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict) or ("name" in entry) == ("names" in entry):
        raise ConfigError(f"{place}: an entry is a column's name, or a mapping with `name` (or a list `names`)")
    options = {k: v for k, v in entry.items() if k not in ("name", "names")}
    names = entry["names"] if "names" in entry else [entry["name"]]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise ConfigError(f"{place}: {names!r} is no name; write a text, in quotes if it looks like a number")
    _check_keys(options, [f.name for f in fields(kind) if f.name not in ("name", "multi_hot")], f"{place}.{names[0]}")  # type: ignore[arg-type]
    check_kinds(options, f"{place}.{names[0]}.")
    return [kind(**{"name": name, **options}) for name in names]


def _as_names(value: Any, place: str) -> tuple[str, ...]:
    if value is None or value == "raw":
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple):
        return tuple(value)
    raise ConfigError(f"{place}: give a list of {', '.join((*POINTWISE, STANDARDIZE))}, or raw")


def _csv(raw: Any, place: str) -> CsvFormat:
    if not isinstance(raw, dict):
        raise ConfigError(f"{place}: give a mapping")
    _check_keys(raw, [f.name for f in fields(CsvFormat)], place)
    check_kinds(raw, f"{place}.")
    text = _csv_format(raw)
    delimiter = "\t" if text.delimiter == "tab" else text.delimiter
    if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\n\r\0':
        raise ConfigError(f"{place}.delimiter: {text.delimiter!r} must be one ASCII character, or tab")
    if text.header == bool(text.columns):
        raise ConfigError(f"{place}: set either header: true or the names of the columns in `columns`")
    return replace(text, delimiter=delimiter)


def _csv_format(raw: dict[str, Any]) -> CsvFormat:
    options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
    return CsvFormat(**options)


def _check_dense(column: DenseColumn, place: str) -> None:
    for i, name in enumerate(column.transform):
        if name not in (*POINTWISE, STANDARDIZE):
            raise ConfigError(
                f"{place}.transform: there is no {name!r}; {nearest(str(name), (*POINTWISE, STANDARDIZE))}"
            )
        if name == STANDARDIZE and i + 1 < len(column.transform):
            raise ConfigError(f"{place}.transform: {STANDARDIZE} comes last")
    if column.missing not in ("mean", "error") and not _is_number(column.missing):
        raise ConfigError(f"{place}.missing: {column.missing!r} must be mean, error or a number of float32's range")
    if not _is_number(column.shift):
        raise ConfigError(f"{place}.shift: {column.shift!r} must be a number of float32's range")


def _is_number(value: Any) -> bool:
    """Whether a value is a number that float32 holds; false for NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= FLOAT32_MAX


def _check_categorical(column: CategoricalColumn, place: str) -> None:
    for key in ("min_count", "max_size", "hash_size", "max_length"):
        value = getattr(column, key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < MAX_TABLE):
            raise ConfigError(f"{place}.{key}: {value!r} must be an integer of at least 1, or null")
    if column.min_count is None and column.hash_size is None:
        raise ConfigError(f"{place}: set min_count (a vocabulary), hash_size (hash buckets) or both")
    if column.min_count is None and column.max_size is not None:
        raise ConfigError(f"{place}.max_size: limits a vocabulary, so set min_count too")
    if column.missing not in ("id", "oov", "error"):
        raise ConfigError(f"{place}.missing: {column.missing!r} must be id, oov or error")
    if column.transform is not None and column.transform not in BUCKETS:
        raise ConfigError(f"{place}.transform: {column.transform!r} must be {' or '.join(BUCKETS)}, or null")
    for key in ("target_mean", "count"):
        if not isinstance(getattr(column, key), bool):
            raise ConfigError(f"{place}.{key}: {getattr(column, key)!r} must be true or false")
        if getattr(column, key) and column.multi_hot:
            raise ConfigError(f"{place}.{key}: a list has no single {key}; it is for columns under categorical")
    smoothing = column.smoothing
    if isinstance(smoothing, bool) or not isinstance(smoothing, int | float) or not 0 < smoothing < math.inf:
        raise ConfigError(f"{place}.smoothing: {smoothing!r} must be a number of rows above 0")
    if not column.multi_hot and (column.separator is not None or column.max_length is not None):
        raise ConfigError(f"{place}: separator and max_length are for columns under multi_hot")
