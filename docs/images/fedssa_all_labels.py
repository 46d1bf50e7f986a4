"""What FedSSA would be worth if class-wise Gaussians were over *all* nodes by their true labels, which leaks test labels.

Eq. 3 of the paper takes the nodes of a class from all n_m nodes of a client. Read so, the semantic term pulls validation and
test nodes toward their own class while training. That is a diagnostic of the printed figures (docs/fidelity.md) and never a
setting of the product.

    python docs/images/fedssa_all_labels.py cora disjoint 10 0,1,2
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import fedquilt
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.group_sums import Groups
from fedquilt.methods.base import register
from fedquilt.methods.fedssa import FedSSA
from fedquilt.nn import class_gaussians
from fedquilt.nn.layers import Weights
from fedquilt.tasks.node_classification import class_count, labels


@register("fedssa-all-labels")
class AllLabels(FedSSA):
    """FedSSA whose class-wise Gaussians are over all labelled nodes, whatever part of the split they are in."""

    title = "FedSSA, all labels"

    def class_gaussians(
        self, w: Weights, cohort: Cohort, mean: Tensor, logvar: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. 3 over all nodes, without dropout."""
        nodes: Tensor = cohort.once("labelled nodes", labelled)
        mean, logvar = self.encode(w, cohort, cohort, self.hidden_layer(w, cohort, cohort))
        with mock.patch.object(class_gaussians, "training_classes", all_classes):
            return class_gaussians.class_gaussians(cohort, mean[nodes], logvar[nodes])


def labelled(cohort: Cohort) -> Tensor:
    """All nodes that have a label: [L] int64."""
    return torch.nonzero(labels(cohort) >= 0).ravel()


def all_classes(cohort: Cohort) -> Groups:
    """They, grouped by client and class."""
    nodes, classes = labelled(cohort), class_count(cohort)
    return Groups(cohort.client[nodes] * classes + labels(cohort)[nodes], cohort.clients * classes)


def main(dataset: str, partition: str, clients: str, seeds: str) -> None:
    """Print the metric with the labels of training nodes and with all labels, by seed."""
    cut: dict[str, Any] = {"dataset": dataset, "partition": partition, "clients": int(clients)}
    for method in ("fedssa", "fedssa-all-labels"):
        for seed in map(int, seeds.split(",")):
            run = fedquilt.run(
                method=method, **cut, seeds=[seed], settings={"classify": "mean", "semantic_weight": 0.1}
            )
            found = run.result["seeds"][0]
            print(f"{method}, seed {seed}: validation {found['val']:.2f}, test {found['test']:.2f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
