"""What a run is asked to do: checked once, written to the run folder, enough to do it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from fedquilt.errors import FedquiltError, unknown
from fedquilt.tasks import NODE_CLASSIFICATION

AttackKind = Literal["same-value", "gaussian"]
Aggregation = Literal["mean", "median", "trimmed", "clipped"]


class RunConfig(BaseModel):
    """A run: one method on one cut of one graph, for some seeds.

    What is None is taken from the dataset's protocol when the run is resolved, `epochs` from the method where it has a default
    of its own. `settings` are the method's; a setting called epochs is the same thing as `epochs`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = "quilt"
    dataset: str = "patchwork"
    partition: str = "disjoint"
    clients: Annotated[int, Field(ge=1)] | None = 10
    sizes: list[Annotated[int, Field(ge=1)]] | None = None
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [0]
    rounds: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    split: str | None = None
    task: str = NODE_CLASSIFICATION
    metric: str | None = None
    settings: dict[str, Any] = {}
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    patience: Annotated[int, Field(ge=1)] | None = None
    min_train: Annotated[int, Field(ge=1)] | None = None
    edge_noise: Annotated[float, Field(ge=0, le=1)] = 0.0
    hold_out_clients: Annotated[float, Field(ge=0, lt=1)] = 0.0
    attack: AttackKind | None = None
    attack_scale: Annotated[float, Field(gt=0)] = 5.0
    attack_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.2
    aggregation: Aggregation = "mean"
    aggregation_trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    aggregation_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    dp_clip: Annotated[float, Field(ge=1e-9, le=1e9)] | None = None  # bounds as in `fedquilt.privacy.dp`
    dp_noise: Annotated[float, Field(ge=1e-3, le=1e6)] | None = None
    dp_epsilon: Annotated[float | None, Field(ge=1e-6, le=1e6, validate_default=True)] = None
    dp_delta: Annotated[float, Field(ge=1e-100, lt=1)] = 1e-5
    cohort_size: Annotated[int, Field(ge=1)] | None = None
    workers: Annotated[int, Field(ge=1)] | None = None
    device: str = "auto"
    precision: Literal["float32", "mixed"] = "float32"
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    data: str | None = None

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("a seed is listed twice")
        return seeds

    @field_validator("attack_scale", "attack_ratio")
    @classmethod
    def _of_an_attack(cls, value: float, info: ValidationInfo) -> float:
        """How strong an attack is means nothing without one, so someone forgot to say which."""
        if info.data.get("attack") is None and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError("there is no attack; say which with attack=same-value or attack=gaussian")
        return value

    @field_validator("aggregation_trim", "aggregation_clip")
    @classmethod
    def _of_a_rule(cls, value: float, info: ValidationInfo) -> float:
        """The same of robust averages."""
        rule = str(info.field_name).replace("aggregation_trim", "trimmed").replace("aggregation_clip", "clipped")
        if info.data.get("aggregation") != rule and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError(f"it is for aggregation={rule} only")
        return value

    @field_validator("dp_clip")
    @classmethod
    def _of_all_clients(cls, value: float | None, info: ValidationInfo) -> float | None:
        """Newcomers send without protection."""
        if value is not None and info.data.get("hold_out_clients"):
            raise ValueError("clients that are held out send unprotected; leave out hold_out_clients")
        return value

    @field_validator("dp_noise", "dp_epsilon", "dp_delta")
    @classmethod
    def _of_a_protection(cls, value: float | None, info: ValidationInfo) -> float | None:
        """Uploads are protected by a clip norm and noise, or a budget from which that follows; half of it means nothing."""
        clip = info.data.get("dp_clip")
        if clip is None and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError("uploads are not clipped; say to which norm with dp_clip")
        if info.field_name == "dp_epsilon" and clip is not None and value is None and info.data.get("dp_noise") is None:
            raise ValueError("dp_clip wants dp_noise beside it, or dp_epsilon, from which the noise follows")
        return value

    @classmethod
    def build(cls, values: Mapping[str, Any]) -> RunConfig:
        """From plain values, with one clear sentence for the first that is wrong."""
        for name in values:
            if name not in cls.model_fields:
                raise unknown("option", name, cls.model_fields)
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            where = str(first["loc"][0])
            wrong = first["msg"].removeprefix("Value error, ")
            raise FedquiltError(
                f"The option {where}={values.get(where)!r} is not possible: {wrong[0].lower()}{wrong[1:]}."
            ) from None

    @property
    def name(self) -> str:
        """What to call the run's folder: method-dataset-partition-clients."""
        cut = Path(self.partition).stem if self.partition.endswith(".npz") else self.partition
        graph = Path(self.dataset).stem if "/" in self.dataset or self.dataset.endswith(".npz") else self.dataset
        return "-".join(str(p) for p in (self.method, graph.replace(":", "-"), cut, self.clients) if p is not None)


def read_config(
    path: Path, example: str = "method: fedpub", kind: str = "config", content: str = "names and values"
) -> dict[str, Any]:
    """Read a YAML (or JSON) file with names and values; errors name its `kind` and `content` and show the `example`."""
    import yaml

    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
        _check_said_once(path, root, kind)
        values = None if root is None else yaml.constructor.SafeConstructor().construct_document(root)
    except OSError as error:
        raise FedquiltError(f"The {kind} file {path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, ValueError) as error:  # a date that is none is a ValueError, as is what is no UTF-8
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where is not None else ""
        raise FedquiltError(f"The {kind} file {path} is not valid YAML{line}; correct it and try again.") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise FedquiltError(f"The {kind} file {path} must hold {content}, such as '{example}'.")
    return values


def _check_said_once(path: Path, root: Any, kind: str) -> None:
    """Refuse a file that says something twice: YAML would take the last and say nothing."""
    import yaml

    nodes, looked_at = [root], set()
    while nodes:
        node = nodes.pop()
        if id(node) in looked_at:  # an alias, perhaps to itself
            continue
        looked_at.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes.extend(node.value)
        if isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in names:
                    where = f"'{key.value}' twice (line {key.start_mark.line + 1})"
                    raise FedquiltError(f"The {kind} file {path} says {where}; keep one of them.")
                names.add(str(key.value))
                nodes.append(value)


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """`["lr=0.005", "masking=false"]` as a dict, values read as YAML reads them."""
    import yaml

    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise FedquiltError(f"--set {pair} is not of the form name=value, such as --set lr=0.005.")
        try:
            out[name.strip()] = _number(value) if _number(value) is not None else yaml.safe_load(value)
        except yaml.YAMLError:
            raise FedquiltError(
                f"--set {pair}: the value cannot be read; write it as a number, true, false or a word."
            ) from None
    return out


def _number(text: str) -> float | int | None:
    # YAML 1.1 reads 1e-3 as text (it wants 1.0e-3); people write 1e-3.
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
