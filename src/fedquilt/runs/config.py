"""The configuration of a run: its options with types, bounds and help (`fedquilt.runs.read_config` reads them from files)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from fedquilt.cohort import MOST_HOPS, MOST_NEIGHBOURS
from fedquilt.common.printable import shown
from fedquilt.common.registry import load_plugins, module_names
from fedquilt.common.validation import fault_of_value, first_problem
from fedquilt.errors import FedquiltError
from fedquilt.runs.client_settings import as_client_settings
from fedquilt.runs.misplaced import check_option_names, check_setting_names
from fedquilt.runs.options import HOW, OUTPUT, WHAT, WHERE, Option
from fedquilt.scenarios.kinds import AggregationRule, AttackKind, LabelNoiseKind
from fedquilt.tasks import NODE_CLASSIFICATION

GIVEN = "@given"  # the dataset of a run whose graph was given as an object and is in no file
CLIENTS = "@clients"  # the dataset of a run whose clients come from `clients_from`
NATURAL = "natural"  # the partition of such a run
GRAPH_FILE = "graph.npz"  # the copy of such a graph in the run folder


# The module of a kind of partition has its name. Listing the modules imports nothing, so that `--help` stays fast.
PARTITION_KINDS = ", ".join(name.replace("_", "-") for name in module_names("fedquilt.partition.kinds"))

# Types that the configuration of a federation has as well.
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Participation = Annotated[float, Field(gt=0, le=1)]
# The kinds of `fedquilt.graphs.copies`, and "never". Not imported from there, so that `--help` stays fast.
KeepCopies = Literal["neighbours", "features", "both", "never"]
# The kinds of `fedquilt.graphs.preparation`. Not imported from there, for the same reason.
Prepare = Literal["none", "standard", "rows"]


class RunConfig(BaseModel):
    """A run: one method on one partition of one graph, for some seeds.

    This is the one place of a run option. The options of `fedquilt run`, `compare` and `tune`, the keys of a config file, the
    signature of `fedquilt.run` and the page of options are made from these fields; see `fedquilt.runs.options`.

    What is None is taken from the dataset's protocol when the run is resolved, `epochs` from the method where it has a default
    of its own. `settings` are the method's; a setting called epochs is the same thing as `epochs`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Annotated[str, Option(WHAT, "A name (see `fedquilt methods`).", short="-m")] = "quilt"
    dataset: Annotated[
        str, Option(WHAT, "A name (see `fedquilt datasets`), an npz file, a folder of tables.", short="-d")
    ] = "patchwork"
    clients_from: Annotated[
        list[str] | None,
        Field(min_length=1),
        Option(
            WHAT,
            "Instead of a dataset: each client's own graph, such as 'hospital-*/'. Folders of tables, npz files, site.yaml "
            "files, or patterns in quotes; may be repeated.",
            metavar="PATHS",
        ),
    ] = None
    partition: Annotated[
        str,
        Option(WHAT, f"{PARTITION_KINDS}, or a file that `fedquilt partition` wrote.", short="-p"),
    ] = "disjoint"
    clients: Annotated[Count | None, Option(WHAT, "Into how many clients.", short="-c")] = 10
    sizes: Annotated[list[Count] | None, Option(WHAT, "For imbalanced: parts a client, such as 5,3,2,2,1.")] = None
    alpha: Annotated[
        float | None,
        Field(gt=0, le=1e6),
        Option(WHAT, "For label-skew and size-skew: how even clients are; smaller is more skewed.", unset="0.5"),
    ] = None
    split: Annotated[
        str | None,
        Option(
            WHAT,
            "Training, validation and test shares, such as 20/40/40; or 5fold: five groups, of which seed s tests on "
            "the s-th; or given: the graph's own. For the task link they are shares of each client's edges.",
            unset="the dataset's; 70/10/20 for link",
        ),
    ] = None
    keep_copies: Annotated[
        KeepCopies | None,
        Option(
            WHAT,
            "Put nodes with the same neighbours, features, or both (either of them) in one part of a random split; or never.",
            unset="where the dataset is known to have copies",
        ),
    ] = None
    prepare: Annotated[
        Prepare | None,
        Option(
            WHAT,
            "How features come to one scale: standard (each numeric column, robust to outliers), rows (counts: each node's "
            "are divided by their sum), or none (as they are).",
            unset="for your own graph rows where features are sparse counts, else standard; none for a dataset",
        ),
    ] = None
    prepare_statistics: Annotated[
        Literal["own", "shared"],
        Option(WHAT, "For standard: by each client's own statistics, or by shared ones, sums over all clients."),
    ] = "own"
    min_train: Annotated[
        Count | None, Option(WHAT, "Draw the split again until each client has so many training nodes.")
    ] = None
    edge_noise: Annotated[
        float,
        Field(ge=0, le=1),
        Option(WHAT, "Chance of each of a client's edges to be moved between two random nodes."),
    ] = 0.0
    feature_noise: Annotated[
        float,
        Field(ge=0, le=1),
        Option(WHAT, "Chance of each feature of a node to be replaced by that of a random node of the same client."),
    ] = 0.0
    label_noise: Annotated[
        float,
        Field(ge=0, le=1),
        Option(WHAT, "Chance of each training label to be another class; validation and test labels stay true."),
    ] = 0.0
    label_noise_kind: Annotated[
        LabelNoiseKind,
        Option(WHAT, "Which class a wrong label is: uniform (any other one) or pair (the next one)."),
    ] = "uniform"
    hold_out_clients: Annotated[
        float,
        Field(ge=0, lt=1),
        Option(WHAT, "Share of the clients that is kept out of training and admitted after it."),
    ] = 0.0
    newcomer_epochs: Annotated[
        Count | None,
        Option(
            WHAT,
            "Epochs that a client which is admitted after training trains what it was given.",
            unset="10, or FedSheafHN's setting",
        ),
    ] = None
    task: Annotated[
        str,
        Option(
            WHAT,
            "What is learned: node-classification, node-regression (see `fedquilt docs regression`), link (see "
            "`fedquilt docs link-prediction`), or one of yours.",
        ),
    ] = NODE_CLASSIFICATION
    task_settings: Annotated[
        dict[str, Any],
        Option(
            WHAT,
            "A setting of the task, such as decoder=mlp of link; may be repeated.",
            flag="--set-task",
            metavar="NAME=VALUE",
        ),
    ] = {}
    metric: Annotated[
        str | None,
        Option(
            WHAT,
            "What chooses the best round and is reported: accuracy, auc, macro-f1, balanced-accuracy, average-precision, "
            "log-loss or ece; of a regression r2, mae, rmse or mse; of link auc, average-precision or hits@20. The others are "
            "computed once, at the end.",
            unset="the dataset's; balanced-accuracy for accuracy where classes are weighted",
        ),
    ] = None

    seeds: Annotated[
        list[Seed],
        Field(min_length=1),
        Option(HOW, "One training a seed, such as 0,1,2.", short="-s"),
    ] = [0]
    rounds: Annotated[Count | None, Option(HOW, "Communication rounds.", short="-r", unset="the dataset's")] = None
    epochs: Annotated[
        Count | None,
        Option(HOW, "Local epochs a round.", unset="the method's own for the dataset, else the dataset's"),
    ] = None
    settings: Annotated[
        dict[str, Any],
        Option(
            HOW,
            "A setting of the method, such as lr=0.005; may be repeated; see `fedquilt methods`.",
            flag="--set",
            metavar="NAME=VALUE",
        ),
    ] = {}
    class_weights: Annotated[
        str,
        Field(min_length=1),
        Option(
            HOW,
            "Classes in the training loss: none; balanced (every class that a client trains on counts alike, by its own "
            "labels); weights, such as 1,1,3.5 or ill=5,well=1; or a YAML file with them.",
        ),
    ] = "none"
    client_settings: Annotated[
        dict[str, dict[str, Any]],
        BeforeValidator(as_client_settings),
        Option(
            HOW,
            "A setting of one client, such as 3:lr=0.005 or 3:model=sage, or a csv file with the columns client, lr, ...; may "
            "be repeated (see `fedquilt docs plugins`).",
            flag="--set-client",
            metavar="CLIENT:NAME=VALUE",
        ),
    ] = {}
    batch: Annotated[
        Literal["full", "clusters", "accumulated", "neighbours"],
        Option(
            HOW,
            "What a training step reads of a client's graph: full (all of it), clusters (a few of the clusters into which "
            "METIS cuts it, for graphs that do not fit into memory at once), accumulated (clusters, whose gradients are "
            "added up to one step an epoch), or neighbours (some training nodes with neighbours that are drawn at random; see "
            "`fedquilt docs scale`).",
        ),
    ] = "full"
    batch_nodes: Annotated[
        int,
        Field(ge=1, le=1_000_000_000),
        Option(
            HOW,
            "For clusters: about how many nodes of a client are read at once; an epoch goes once through all of them. For "
            "neighbours: how many training nodes, beside their neighbours; an epoch goes once through all training nodes.",
        ),
    ] = 10_000
    fan_out: Annotated[
        list[Annotated[int, Field(ge=1, le=MOST_NEIGHBOURS)]],
        Field(min_length=1, max_length=MOST_HOPS),
        Option(
            HOW,
            "For neighbours: how many of a node's neighbours are drawn at each distance from a step's training nodes, such as "
            "10,5; as many numbers as the network has graph layers.",
        ),
    ] = [10, 10]
    participation: Annotated[Participation, Option(HOW, "Share of the clients in each round.")] = 1.0
    drop_out: Annotated[
        float,
        Field(ge=0, lt=1),
        Option(HOW, "Chance of each participant in each round that its upload is lost, after it trained."),
    ] = 0.0
    stragglers: Annotated[
        float,
        Field(ge=0, le=1),
        Option(
            HOW,
            "Chance of each participant in each round to do only a part of its local epochs, drawn evenly; one that does not "
            "finish one sits the round out.",
        ),
    ] = 0.0
    join_late: Annotated[float, Field(ge=0, lt=1), Option(HOW, "Share of the clients that join later.")] = 0.0
    join_round: Annotated[
        Count | None, Option(HOW, "The round in which they join; rounds count from 0.", unset="half the rounds")
    ] = None
    leave: Annotated[
        float, Field(ge=0, lt=1), Option(HOW, "Share of the clients that leave early, with the models they have then.")
    ] = 0.0
    leave_round: Annotated[Count | None, Option(HOW, "The first round without them.", unset="half the rounds")] = None
    upload_delay: Annotated[
        int,
        Field(ge=0),
        Option(
            HOW, "Asynchronous rounds: an upload takes up to so many rounds, drawn evenly, and its client waits for it."
        ),
    ] = 0
    buffer: Annotated[
        Count | None,
        Option(
            HOW, "Asynchronous rounds: the server aggregates when so many uploads have come.", unset="all that come"
        ),
    ] = None
    evaluate_every: Annotated[Count, Option(HOW, "Rounds between evaluations.", flag="--eval-every")] = 1
    patience: Annotated[
        Count | None,
        Option(HOW, "Stop after so many rounds without a better validation metric.", unset="never"),
    ] = None
    on_divergence: Annotated[
        Literal["retry", "stop"],
        Option(
            HOW,
            "Where a seed's training diverges: retry (once more from the start, with a tenth of the learning rates and clipped "
            "gradients; every table says so), or stop.",
        ),
    ] = "retry"
    attack: Annotated[
        AttackKind | None,
        Option(
            HOW,
            "What malicious clients send: a false embedding, same-value (one number throughout) or gaussian (noise); or false "
            "weights, noise, flip (turned round), scaled (a longer step), random (a step anywhere), counts (huge ones, behind "
            "true weights), labels (trained on wrong ones), own-rows (flipped where few others have evidence), inflated "
            "(flipped, behind huge counts and the description of an average client) or stealth (against the others, within "
            "bounds).",
            unset="none",
        ),
    ] = None
    attack_scale: Annotated[
        float,
        Field(gt=0),
        Option(HOW, "Standard deviation of what malicious clients send, or the factor of what they flip or scale."),
    ] = 5.0
    attack_ratio: Annotated[float, Field(gt=0, lt=1), Option(HOW, "Share of the clients that is malicious.")] = 0.2
    aggregation: Annotated[
        AggregationRule,
        Option(
            HOW,
            "How servers that average do so: mean, or, against hostile clients, guarded (steps that are bounded by what "
            "others do), median, trimmed (mean) or clipped (toward the median).",
        ),
    ] = "mean"
    aggregation_trim: Annotated[
        float, Field(ge=0, lt=0.5), Option(HOW, "For trimmed: share of the clients left out on each side.")
    ] = 0.2
    aggregation_clip: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False),
        Option(HOW, "For clipped: how far a client may be from the median, in median distances."),
    ] = 1.0
    aggregation_voters: Annotated[
        int,
        Field(ge=1),
        Option(HOW, "For guarded: the previous value votes in place of so many clients where fewer have evidence."),
    ] = 3
    # The bounds of the next four are those of `fedquilt.privacy.dp.DpConfig`.
    dp_clip: Annotated[
        Annotated[float, Field(ge=1e-9, le=1e9)] | None,
        Option(
            HOW,
            "Protect uploads by differential privacy: cut each to this norm, and add noise (see fedquilt docs privacy).",
        ),
    ] = None
    dp_noise: Annotated[
        Annotated[float, Field(ge=1e-3, le=1e6)] | None,
        Option(HOW, "The noise's standard deviation over the norm.", unset="what the budget asks for"),
    ] = None
    dp_epsilon: Annotated[
        Annotated[float, Field(ge=1e-6, le=1e6)] | None,
        Field(validate_default=True),
        Option(HOW, "The budget of a client over all rounds; a run stops before it would exceed it."),
    ] = None
    dp_delta: Annotated[float, Field(ge=1e-100, lt=1), Option(HOW, "The chance that epsilon does not hold.")] = 1e-5

    device: Annotated[str, Option(WHERE, "auto, cpu or cuda.")] = "auto"
    precision: Annotated[
        Literal["float32", "mixed"],
        Option(WHERE, "float32, or mixed: on an accelerator dense products have fewer bits (TF32)."),
    ] = "float32"
    cohort_size: Annotated[
        Count | None, Option(WHERE, "Clients computed at once; fewer need less memory.", unset="all")
    ] = None
    workers: Annotated[
        Count | None,
        Option(
            WHERE,
            "Train the clients in so many processes on Ray, on this machine or on a cluster.",
            unset="all in this one",
        ),
    ] = None
    threads: Annotated[
        Count | None,
        Option(
            WHERE,
            "CPU threads, of each worker where there are some; results differ by rounding only.",
            unset="OMP_NUM_THREADS, else by the work and the CPUs that this process has",
        ),
    ] = None
    data: Annotated[
        str | None,
        Option(WHERE, "The folder with graphs; by default FEDQUILT_DATA, else the user's cache.", kind=Path),
    ] = None
    plugins: Annotated[
        list[str],
        Option(
            WHERE,
            "A Python file of yours that registers methods, datasets, partitions, tasks or backbones; may be repeated "
            "(see `fedquilt docs plugins`).",
            flag="--plugin",
            metavar="FILE",
        ),
    ] = []
    checkpoint_seconds: Annotated[
        float,
        Field(ge=0),
        Option(OUTPUT, "Seconds between checkpoints.", flag="--checkpoint-every", metavar="SECONDS"),
    ] = 30.0

    @field_validator("*", mode="before")
    @classmethod
    def _check_plain(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse text that is no name and no path, numbers that nothing can count, and true or false for a number."""
        if fault := fault_of_value(value):
            raise ValueError(fault)
        values = value if isinstance(value, list) else [value]
        if bool in map(type, values) and "bool" not in str(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("true and false are no value of it")
        return value

    @field_validator("seeds")
    @classmethod
    def _check_distinct(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("a seed is listed twice")
        return seeds

    @field_validator("class_weights", mode="before")
    @classmethod
    def _check_class_weights(cls, value: Any) -> Any:
        """Weights may be a list, one a class, or a mapping from class to weight: a config file and Python have them so."""
        if isinstance(value, Mapping):
            return ",".join(f"{name}={weight}" for name, weight in value.items())
        return ",".join(map(str, value)) if isinstance(value, list | tuple) else value

    @field_validator("attack_scale", "attack_ratio")
    @classmethod
    def _check_attack(cls, value: float, info: ValidationInfo) -> float:
        """Refuse the strength of an attack where no attack is named."""
        if info.data.get("attack") is None and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError("there is no attack; say which, such as attack=flip")
        return value

    @field_validator("join_round", "leave_round")
    @classmethod
    def _check_who(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Refuse a round in which clients join or leave where none do."""
        share = "join_late" if info.field_name == "join_round" else "leave"
        if value is not None and not info.data.get(share):
            raise ValueError(f"no clients do; say which share of them with {share}")
        return value

    @field_validator("label_noise_kind")
    @classmethod
    def _check_label_noise(cls, value: str, info: ValidationInfo) -> str:
        """Refuse a kind of noise where there is none."""
        if not info.data.get("label_noise") and value != cls.model_fields["label_noise_kind"].default:
            raise ValueError("there is no noise on labels; say how much, such as label_noise=0.2")
        return value

    @field_validator("aggregation_trim", "aggregation_clip", "aggregation_voters")
    @classmethod
    def _check_rule(cls, value: float, info: ValidationInfo) -> float:
        """Refuse the parameter of another aggregation rule than the one named."""
        rules = {"aggregation_trim": "trimmed", "aggregation_clip": "clipped", "aggregation_voters": "guarded"}
        rule = rules[str(info.field_name)]
        if info.data.get("aggregation") != rule and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError(f"it is for aggregation={rule} only")
        return value

    @field_validator("batch_nodes")
    @classmethod
    def _check_batch(cls, value: int, info: ValidationInfo) -> int:
        """Refuse the size of a batch where a step reads the whole graph."""
        if info.data.get("batch") == "full" and value != cls.model_fields["batch_nodes"].default:
            raise ValueError("a step reads the whole graph; say batch=clusters")
        return value

    @field_validator("fan_out")
    @classmethod
    def _check_fan_out(cls, value: list[int], info: ValidationInfo) -> list[int]:
        """Refuse numbers of neighbours where none are drawn."""
        if info.data.get("batch") != "neighbours" and value != cls.model_fields["fan_out"].default:
            raise ValueError("no neighbours are drawn; say batch=neighbours")
        return value

    @field_validator("prepare_statistics")
    @classmethod
    def _check_statistics(cls, value: str, info: ValidationInfo) -> str:
        """Refuse shared statistics where features are prepared without any."""
        if value == "shared" and info.data.get("prepare") in ("none", "rows"):
            raise ValueError("statistics are for prepare=standard only")
        return value

    @field_validator("dp_clip")
    @classmethod
    def _check_statistics_stay(cls, value: float | None, info: ValidationInfo) -> float | None:
        """Refuse shared statistics in a protected run: they would leave the clients without noise."""
        if value is not None and info.data.get("prepare_statistics") == "shared":
            raise ValueError("shared statistics of features would be sent unprotected; use prepare_statistics=own")
        return value

    @field_validator("dp_clip")
    @classmethod
    def _check_no_newcomers(cls, value: float | None, info: ValidationInfo) -> float | None:
        """Refuse to hold clients out of a protected run: newcomers send without protection."""
        if value is not None and info.data.get("hold_out_clients"):
            raise ValueError("clients that are held out send unprotected; leave out hold_out_clients")
        return value

    @field_validator("dp_noise", "dp_epsilon", "dp_delta")
    @classmethod
    def _check_protection(cls, value: float | None, info: ValidationInfo) -> float | None:
        """Refuse half a protection: it needs a clip norm, and noise or a budget from which the noise follows."""
        clip = info.data.get("dp_clip")
        if clip is None and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError("uploads are not clipped; say to which norm with dp_clip")
        if info.field_name == "dp_epsilon" and clip is not None and value is None and info.data.get("dp_noise") is None:
            raise ValueError("dp_clip wants dp_noise beside it, or dp_epsilon, from which the noise follows")
        return value

    @classmethod
    def build(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build a configuration from plain values or paths; the first wrong one is an error of one sentence.

        Plug-ins among them are loaded, where their user named them before (`fedquilt.common.registry.load_plugins`).
        """
        values = {name: _without_paths(value) for name, value in values.items()}
        if isinstance(files := values.get("plugins"), list) and all(isinstance(file, str) for file in files):
            load_plugins(files, named=False)  # first: the other values may name what they register
        check_option_names(values, cls)
        check_setting_names(values.get("settings"), cls)
        if values.get("clients_from"):
            values = _of_clients(values)
        try:
            return cls(**values)
        except ValidationError as error:
            problem = first_problem(error)
            name = str(problem.path[0])
            raise FedquiltError(problem.sentence(f"The option {name}={shown(values.get(name))}")) from None

    @property
    def name(self) -> str:
        """The name of the run's folder: method-dataset-partition-clients."""
        if self.clients_from is not None:
            return "-".join(
                str(p) for p in (self.method, clients_label(self.clients_from), self.clients) if p is not None
            )
        cut = Path(self.partition).stem if self.partition.endswith(".npz") else self.partition
        graph = Path(self.dataset).stem if "/" in self.dataset or self.dataset.endswith(".npz") else self.dataset
        return "-".join(str(p) for p in (self.method, graph.replace(":", "-"), cut, self.clients) if p is not None)


def clients_label(paths: Sequence[str]) -> str:
    """What to call the graphs in these files and folders together: the beginning of all their names, else "clients"."""
    names = [Path(path).parent.resolve().name if Path(path).name == "site.yaml" else Path(path).stem for path in paths]
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike).split("*")[0].strip("-_. ") or "clients"


def _without_paths(value: Any) -> Any:
    """The value of an option with paths as text, which a user of Python may give as `pathlib.Path`, alone or in a list."""
    if isinstance(value, list | tuple):
        return [_without_paths(each) for each in value] if any(isinstance(each, Path) for each in value) else value
    return str(value) if isinstance(value, Path) else value


def _of_clients(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run on given clients, which are its dataset and its partition; refused with another one of these."""
    own = {"dataset": CLIENTS, "partition": NATURAL, "sizes": None, "alpha": None}
    # A stored configuration says how many clients were found.
    own |= {} if values.get("dataset") == CLIENTS else {"clients": None}
    for name, right in own.items():
        if values.get(name) not in (None, right):
            raise FedquiltError(
                f"The option {name}={shown(values[name])} does not go with clients_from, which gives each client its own "
                f"graph; leave out {name} or clients_from."
            )
    return {"clients": None, **values, **own}


def copies_kept(dataset: str, asked: KeepCopies | None = None) -> KeepCopies:
    """What a run on a dataset does: as it is `asked` to, or as the dataset says."""
    from fedquilt.datasets.catalogue import known_copies

    return asked or known_copies(dataset) or "never"


def copies_kept_before(dataset: str) -> KeepCopies:
    """What a run on a dataset did before there was `keep_copies`: only the copies in a union of graphs were kept together."""
    from fedquilt.datasets.catalogue import choose, in_catalogue

    return "features" if in_catalogue(dataset) and choose(dataset).parts else "never"
