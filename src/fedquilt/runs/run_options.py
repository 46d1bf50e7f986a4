"""The keyword arguments of `fedquilt.run`, for type checkers. Made from `RunConfig` by `make options`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class RunOptions(TypedDict, total=False):
    """The options of a run, without the method and the dataset; `RunConfig` has their bounds; see `fedquilt docs options`."""

    clients_from: list[str] | None
    """Instead of a dataset: each client's own graph, such as 'hospital-*/'. Folders of tables, npz files, site.yaml
    files, or patterns in quotes; may be repeated.
    """

    partition: str
    """disjoint, imbalanced, label-skew, louvain, louvain-50, natural, overlapping, random, size-skew, or a file that
    `fedquilt partition` wrote. Default: disjoint.
    """

    clients: int | None
    """Into how many clients. Default: 10."""

    sizes: list[int] | None
    """For imbalanced: parts a client, such as 5,3,2,2,1."""

    alpha: float | None
    """For label-skew and size-skew: how even clients are; smaller is more skewed. Default: 0.5."""

    split: str | None
    """Training, validation and test shares, such as 20/40/40; or 5fold: five groups, of which seed s tests on the
    s-th; or given: the graph's own. For the task link they are shares of each client's edges. Default: the
    dataset's; 70/10/20 for link.
    """

    keep_copies: Literal["neighbours", "features", "both", "never"] | None
    """Put nodes with the same neighbours, features, or both (either of them) in one part of a random split; or
    never. Default: where the dataset is known to have copies.
    """

    prepare: Literal["none", "standard", "rows"] | None
    """How features come to one scale: standard (each numeric column, robust to outliers), rows (counts: each node's
    are divided by their sum), or none (as they are). Default: for your own graph rows where features are sparse
    counts, else standard; none for a dataset.
    """

    prepare_statistics: Literal["own", "shared"]
    """For standard: by each client's own statistics, or by shared ones, sums over all clients. Default: own."""

    min_train: int | None
    """Draw the split again until each client has so many training nodes."""

    edge_noise: float
    """Chance of each of a client's edges to be moved between two random nodes. Default: 0."""

    feature_noise: float
    """Chance of each feature of a node to be replaced by that of a random node of the same client. Default: 0."""

    label_noise: float
    """Chance of each training label to be another class; validation and test labels stay true. Default: 0."""

    label_noise_kind: Literal["uniform", "pair"]
    """Which class a wrong label is: uniform (any other one) or pair (the next one). Default: uniform."""

    hold_out_clients: float
    """Share of the clients that is kept out of training and admitted after it. Default: 0."""

    newcomer_epochs: int | None
    """Epochs that a client which is admitted after training trains what it was given. Default: 10, or FedSheafHN's
    setting.
    """

    task: str
    """What is learned: node-classification, node-regression (see `fedquilt docs regression`), link (see `fedquilt
    docs link-prediction`), or one of yours. Default: node-classification.
    """

    task_settings: dict[str, Any]
    """A setting of the task, such as decoder=mlp of link; may be repeated."""

    metric: str | None
    """What chooses the best round and is reported: accuracy, auc, macro-f1, balanced-accuracy, average-precision,
    log-loss or ece; of a regression r2, mae, rmse or mse; of link auc, average-precision or hits@20. The others
    are computed once, at the end. Default: the dataset's; balanced-accuracy for accuracy where classes are
    weighted.
    """

    seeds: list[int]
    """One training a seed, such as 0,1,2. Default: 0."""

    rounds: int | None
    """Communication rounds. Default: the dataset's."""

    epochs: int | None
    """Local epochs a round. Default: the method's own for the dataset, else the dataset's."""

    settings: dict[str, Any]
    """A setting of the method, such as lr=0.005; may be repeated; see `fedquilt methods`."""

    class_weights: str
    """Classes in the training loss: none; balanced (every class that a client trains on counts alike, by its own
    labels); weights, such as 1,1,3.5 or ill=5,well=1; or a YAML file with them. Default: none.
    """

    client_settings: dict[str, dict[str, Any]]
    """A setting of one client, such as 3:lr=0.005 or 3:model=sage, or a csv file with the columns client, lr, ...;
    may be repeated (see `fedquilt docs plugins`).
    """

    batch: Literal["full", "clusters", "accumulated", "neighbours"]
    """What a training step reads of a client's graph: full (all of it), clusters (a few of the clusters into which
    METIS cuts it, for graphs that do not fit into memory at once), accumulated (clusters, whose gradients are
    added up to one step an epoch), or neighbours (some training nodes with neighbours that are drawn at random;
    see `fedquilt docs scale`). Default: full.
    """

    batch_nodes: int
    """For clusters: about how many nodes of a client are read at once; an epoch goes once through all of them. For
    neighbours: how many training nodes, beside their neighbours; an epoch goes once through all training nodes.
    Default: 10000.
    """

    fan_out: list[int]
    """For neighbours: how many of a node's neighbours are drawn at each distance from a step's training nodes, such
    as 10,5; as many numbers as the network has graph layers. Default: 10,10.
    """

    participation: float
    """Share of the clients in each round. Default: 1."""

    drop_out: float
    """Chance of each participant in each round that its upload is lost, after it trained. Default: 0."""

    stragglers: float
    """Chance of each participant in each round to do only a part of its local epochs, drawn evenly; one that does
    not finish one sits the round out. Default: 0.
    """

    join_late: float
    """Share of the clients that join later. Default: 0."""

    join_round: int | None
    """The round in which they join; rounds count from 0. Default: half the rounds."""

    leave: float
    """Share of the clients that leave early, with the models they have then. Default: 0."""

    leave_round: int | None
    """The first round without them. Default: half the rounds."""

    upload_delay: int
    """Asynchronous rounds: an upload takes up to so many rounds, drawn evenly, and its client waits for it. Default:
    0.
    """

    buffer: int | None
    """Asynchronous rounds: the server aggregates when so many uploads have come. Default: all that come."""

    evaluate_every: int
    """Rounds between evaluations. Default: 1."""

    patience: int | None
    """Stop after so many rounds without a better validation metric. Default: never."""

    on_divergence: Literal["retry", "stop"]
    """Where a seed's training diverges: retry (once more from the start, with a tenth of the learning rates and
    clipped gradients; every table says so), or stop. Default: retry.
    """

    attack: (
        Literal[
            "same-value",
            "gaussian",
            "noise",
            "flip",
            "scaled",
            "random",
            "counts",
            "labels",
            "own-rows",
            "inflated",
            "stealth",
        ]
        | None
    )
    """What malicious clients send: a false embedding, same-value (one number throughout) or gaussian (noise); or
    false weights, noise, flip (turned round), scaled (a longer step), random (a step anywhere), counts (huge
    ones, behind true weights), labels (trained on wrong ones), own-rows (flipped where few others have evidence),
    inflated (flipped, behind huge counts and the description of an average client) or stealth (against the
    others, within bounds). Default: none.
    """

    attack_scale: float
    """Standard deviation of what malicious clients send, or the factor of what they flip or scale. Default: 5."""

    attack_ratio: float
    """Share of the clients that is malicious. Default: 0.2."""

    aggregation: Literal["mean", "median", "trimmed", "clipped", "guarded"]
    """How servers that average do so: mean, or, against hostile clients, guarded (steps that are bounded by what
    others do), median, trimmed (mean) or clipped (toward the median). Default: mean.
    """

    aggregation_trim: float
    """For trimmed: share of the clients left out on each side. Default: 0.2."""

    aggregation_clip: float
    """For clipped: how far a client may be from the median, in median distances. Default: 1."""

    aggregation_voters: int
    """For guarded: the previous value votes in place of so many clients where fewer have evidence. Default: 3."""

    dp_clip: float | None
    """Protect uploads by differential privacy: cut each to this norm, and add noise (see fedquilt docs privacy).
    """

    dp_noise: float | None
    """The noise's standard deviation over the norm. Default: what the budget asks for."""

    dp_epsilon: float | None
    """The budget of a client over all rounds; a run stops before it would exceed it."""

    dp_delta: float
    """The chance that epsilon does not hold. Default: 1e-5."""

    device: str
    """auto, cpu or cuda. Default: auto."""

    precision: Literal["float32", "mixed"]
    """float32, or mixed: on an accelerator dense products have fewer bits (TF32). Default: float32."""

    cohort_size: int | None
    """Clients computed at once; fewer need less memory. Default: all."""

    workers: int | None
    """Train the clients in so many processes on Ray, on this machine or on a cluster. Default: all in this one.
    """

    threads: int | None
    """CPU threads, of each worker where there are some; results differ by rounding only. Default: OMP_NUM_THREADS,
    else by the work and the CPUs that this process has.
    """

    data: str | None
    """The folder with graphs; by default FEDQUILT_DATA, else the user's cache."""

    plugins: list[str]
    """A Python file of yours that registers methods, datasets, partitions, tasks or backbones; may be repeated (see
    `fedquilt docs plugins`).
    """

    checkpoint_seconds: float
    """Seconds between checkpoints. Default: 30."""
