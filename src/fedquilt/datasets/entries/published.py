"""Public datasets of one graph each, read by PyTorch Geometric, from OGB, or from files that the user puts in place."""

from __future__ import annotations

from fedquilt.datasets.catalogue import register
from fedquilt.datasets.dataset import Dataset, Parameter
from fedquilt.datasets.download import KaggleFraud, NiftyFiles, OgbArchive, PyGDataset
from fedquilt.graphs.protocol import Protocol

_GITHUB = "https://github.com"
_GITHUB_FILES = "https://raw.githubusercontent.com"
_GOOGLE_DRIVE = "https://drive.usercontent.google.com"


def _planetoid(key: str) -> PyGDataset:
    return PyGDataset("planetoid", "Planetoid", _GITHUB, (key,))


def _amazon(key: str) -> PyGDataset:
    return PyGDataset("amazon", "Amazon", _GITHUB, (key,))


def _heterophilous(key: str) -> PyGDataset:
    return PyGDataset("heterophilous", "HeterophilousGraphDataset", _GITHUB, (key,))


def _wikipedia(key: str) -> PyGDataset:
    return PyGDataset("wikipedia", "WikipediaNetwork", _GITHUB_FILES, (key,))


def _prepared(rounds: int = 100, epochs: int = 1) -> Protocol:
    return Protocol(largest_component=True, normalise_features=True, rounds=rounds, epochs=epochs)


_RAW = Protocol()
_AUC = Protocol(metric="auc")
_ARXIV = Protocol(split=(0.05, 0.475, 0.475), rounds=200, epochs=2)
# FedHERO splits nodes into five groups: three train, one validates, one tests.
_FEDHERO = Protocol(split=(0.6, 0.2, 0.2), rounds=200)
_FEDHERO_AUC = Protocol(metric="auc", split=(0.6, 0.2, 0.2), rounds=200)

for _dataset in (
    # name, description, (nodes, edges, features, classes), protocol, raw files
    Dataset(
        "cora", "citations, machine learning", *(2708, 5278, 1433, 7), _prepared(), _planetoid("Cora"), sparse=True
    ),
    Dataset(
        "citeseer",
        "citations, computer science",
        *(3327, 4552, 3703, 6),
        _prepared(),
        _planetoid("CiteSeer"),
        sparse=True,
    ),
    Dataset("pubmed", "citations, diabetes", *(19717, 44324, 500, 3), _prepared(), _planetoid("PubMed"), sparse=True),
    Dataset(
        "amazon-photo",
        "co-purchases, photography",
        *(7650, 119081, 745, 8),
        _prepared(200, 2),
        _amazon("Photo"),
        sparse=True,
    ),
    Dataset(
        "amazon-computers",
        "co-purchases, computers",
        *(13752, 245861, 767, 10),
        _prepared(200, 3),
        _amazon("Computers"),
        sparse=True,
    ),
    Dataset(
        "ogbn-arxiv", "citations, arXiv computer science", *(169343, 1157799, 128, 40), _ARXIV, OgbArchive("arxiv")
    ),
    Dataset("roman-empire", "words of an article", *(22662, 32927, 300, 18), _RAW, _heterophilous("Roman-empire")),
    Dataset(
        "amazon-ratings",
        "products and their ratings",
        *(24492, 93050, 300, 5),
        _RAW,
        _heterophilous("Amazon-ratings"),
    ),
    Dataset("minesweeper", "cells of a game board", *(10000, 39402, 7, 2), _AUC, _heterophilous("Minesweeper")),
    Dataset("tolokers", "workers who shared tasks", *(11758, 519000, 10, 2), _AUC, _heterophilous("Tolokers")),
    Dataset("questions", "users of a question site", *(48921, 153540, 301, 2), _AUC, _heterophilous("Questions")),
    Dataset(
        "squirrel",
        "Wikipedia pages on squirrels",
        *(5201, 198353, 2089, 5),
        _FEDHERO,
        _wikipedia("squirrel"),
        sparse=True,
        copies="neighbours",
    ),
    Dataset(
        "chameleon",
        "Wikipedia pages on chameleons",
        *(2277, 31371, 2325, 5),
        _FEDHERO,
        _wikipedia("chameleon"),
        sparse=True,
        copies="neighbours",
    ),
    Dataset(
        "actor",
        "actors on the same pages",
        *(7600, 26659, 932, 5),
        _FEDHERO,
        PyGDataset("actor", "Actor", _GITHUB_FILES),
        sparse=True,
    ),
    Dataset(
        "flickr",
        "images with common properties",
        *(89250, 449878, 500, 7),
        _FEDHERO,
        PyGDataset("flickr", "Flickr", _GOOGLE_DRIVE),
    ),
    Dataset(
        "ieee-fraud",
        "card payments, fraud or not; four products",
        *(144233, 28048995, 371, 2),
        _FEDHERO_AUC,
        KaggleFraud(),
        parameters={"neighbours": Parameter("195")},
        files=("ieee-fraud-{neighbours}",),
    ),
    Dataset(
        "credit",
        "card holders, default or not",
        *(30000, 137377, 13, 2),
        _FEDHERO_AUC,
        NiftyFiles(),
        files=("credit", "credit-137k"),
    ),
):
    register(_dataset)
