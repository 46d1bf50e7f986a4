"""FED-PUB: Baek et al., Personalized Subgraph Federated Learning, ICML 2023.

Clients whose models do the same thing to the same random graph belong to the same community: the server compares these
functional embeddings and gives each client an average of all models weighted by similarity (eq. 3). Each client keeps a
private mask that selects and scales the weights it received (section 4.2), and a proximal term holds the masked model near
the received one (eq. 4). Nothing is pruned by default: `threshold=0.2` sends 46 to 69 % of the
bytes at no loss of accuracy, and tells the server which weights a client does not use.

Where the code and the paper differ, and why (what was measured is in `fedquilt docs fidelity`):

- *What is sent.* The masked weights theta * mu, as in the paper's Algorithm 1 (the public code sends theta: `upload=plain`).
  To the letter, clients apply their lasting masks again to an average that holds them already, so that weights grow
  exponentially. Here a mask fades when an average comes in, mu <- 1 + `lasting` (mu - 1), and no matrix is sent with more than
  `limit` times the norm of the start, so that nothing can grow without bound. The paper's form: `lasting=1 limit=0`.
- *Similarity.* The cosine of embeddings, as in the paper. Training on averages makes all of them alike (0.98 and more at the
  best round), so that everyone comes to get the plain average. `contrast=centred` takes the cosine of embeddings less their
  mean over the clients, scaled so that it is 1/2 on average, and goes on telling clients apart. That is worth 5 points on Cora
  in twenty parts without masks, and nothing with them, so it is not the default.
- *L1.* The paper adds lambda1 ||mu||_1 to the loss. Adam normalises the gradient it is given, so a sum over 200,000
  entries swamps the cross-entropy whatever its scale (and in the public code the term has no gradient at all). Here it
  is the proximal step of the same term, after Adam's: mu <- sign(mu) max(|mu| - lr lambda1, 0). With the default lambda1 that
  is 0.001 in a hundred steps, which prunes nothing.
- *Threshold.* The paper prunes entries whose mask is small. A mask starts at one and moves by at most `lr` a step, and a
  small mask on a large weight still matters, so that prunes late and prunes the wrong entries. Here an entry is pruned
  where what the mask leaves of the weight, |theta mu|, is under `threshold` times the client's mean of it in that matrix.
  Pruned entries are neither sent, nor received, nor used.
- *Proximal term.* lambda2 ||theta * mu - theta_received||^2, on the masked weights: that is the model the paper's theta_i
  stands for (section 4.2), and it has a gradient from the first local step on.
- *Many clients.* Above a thousand, the averages are made from a thin factorisation of the kernel exp(tau S) instead of a matrix
  of all pairs (`fedquilt.nn.kernel_average`), in time linear in clients; a client that sat a round out is then compared by the
  embedding it last sent (less the mean of its round), where otherwise by the round in which both last sent.
- *Partial participation*, of which the paper says nothing. A client's average is of those who sent in the round before; the
  similarity of a pair is of the round in which both last sent. A pair that never did counts as the receiver's others do on
  average (`fedquilt.methods.known_pairs`), and a receiver that never sent gets the plain average. Its mask rests meanwhile.
- The random graph: the server sends its seed (8 bytes), the clients draw it. The graph is the same for all.
- Neither weights nor masks decay by default: see `fedquilt.methods.settings.BackboneSettings`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.common.random_streams import derive
from fedquilt.devices.offload import row_chunks
from fedquilt.messages.message import Factored, Message, Sparse, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging, places_among, strangers
from fedquilt.methods.base import EMBEDDING, STANDING, RoundSizes, RunContext, State, register
from fedquilt.methods.base_adam import MODEL, along
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.diagnostics import effective_clients, mean_norm, pair_median
from fedquilt.methods.fedavg import TRAIN_NODES
from fedquilt.methods.known_pairs import note_pairs, with_typical
from fedquilt.methods.settings import BackboneSettings, NonNegative, Positive, Share
from fedquilt.nn.cross_cosine import cross_cosine
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.functional_embedding import (
    Copies,
    RandomGraph,
    embedding_on_copies,
    functional_embedding,
    random_client,
    random_graph,
)
from fedquilt.nn.kernel_average import RANK, shares
from fedquilt.nn.layers import Weights, masked
from fedquilt.nn.models import common_start, matrices, part
from fedquilt.tasks.node_classification import class_count, labels

MASK, LABEL_SHARE, KNOWN, DIAGNOSTIC = "mask.", "label_share", "known", "diagnostic."
SEED = "graph_seed"  # of the random graph: in the server's state, and sent
MANY = 1000  # clients from which on the matrix of their similarities is not written out
SAMPLE = 64  # receivers of whose weights there are diagnostics, where the matrix of all weights is not written out
COMMUNITY = 0.5  # similarity above which two clients are one community, when communities are explicit (Table 11)


@dataclass(frozen=True)
class FedPubSettings(BackboneSettings):
    """The backbone's settings and FED-PUB's own.

    Attributes:
        tau: how sharply similarity is turned into weights (paper: 3 disjoint, 5 overlapping).
        l1: lambda1, how strongly masks are pushed to zero; the default hardly moves them and makes nothing sparse.
        threshold: entries that the mask leaves below this share of the client's mean entry are pruned; 0: none.
        proximal: lambda2, how strongly the masked model is held near the received one (paper: 0.001).
        similarity: what is compared (Table 10): function, parameter, gradient, or label (reveals label shares).
        graph: what functional embeddings are computed on (Table 9): sbm, er, one (node), or feature (the client's own).
        communities: implicit (a softmax over all) or explicit (only clients more similar than 0.5, Table 11).
        matching: average by similarity (off: plain averaging; Figure 7).
        masking: private masks (off: none; Figure 7).
        upload: masked (weights times masks, as in Algorithm 1) or plain (weights; masks act at home only: the public code).
        lasting: the share of a mask's distance from one that is left when an average comes in. 1: the paper, where
            masks that were sent are applied again and weights grow from round to round; 0: masks start anew every round.
        limit: the largest norm of a weight matrix that is sent, in norms of the common start; 0: none, as in the paper.
        contrast: what the cosine between clients is of: none (embeddings as they are: the paper) or centred (less their mean:
            better without masks, or where clients are of a few clearly different families).
    """

    tau: Positive = 3.0
    l1: NonNegative = 0.001
    threshold: NonNegative = 0.0
    proximal: NonNegative = 0.003
    similarity: Literal["function", "parameter", "gradient", "label"] = "function"
    graph: Literal["sbm", "er", "one", "feature"] = "sbm"
    communities: Literal["implicit", "explicit"] = "implicit"
    matching: bool = True
    masking: bool = True
    upload: Literal["masked", "plain"] = "masked"
    lasting: Share = 0.97
    limit: NonNegative = 5.0
    contrast: Literal["none", "centred"] = "none"


@register("fedpub")
class FedPub(BackboneMethod):
    """State: the received weights as trained since (``model.``), and the private masks (``mask.``)."""

    title = "FED-PUB"
    paper = "Baek et al., ICML 2023"
    admits = True
    newcomers = (
        "A newcomer is given the average of all models, trains it for a round, sends its functional embedding (or "
        "what `similarity` compares), and is given an average by its similarity to the clients that trained."
    )
    Settings = FedPubSettings
    single_uploads = (
        "server compares the clients' functional embeddings and averages their models anew for each receiver"
    )
    searched = (*BackboneMethod.searched, "hidden", "tau", "l1", "proximal")
    client_settings = ("weight_decay", "epochs")  # masks shrink by one lr for all
    settings: FedPubSettings
    uploads = (
        TensorSpec(
            MODEL + "*",
            "The client's model after training, without the entries its mask removed: which entries are missing tells "
            "which features and hidden units it does not use.",
            weights=True,
        ),
        TensorSpec(EMBEDDING, "The mean output of the client's masked model on a random graph (or on its own)."),
        TensorSpec(LABEL_SHARE, "How the client's training labels are distributed over the classes."),
        TRAIN_NODES,
    )
    downloads = (
        TensorSpec(MODEL + "*", "An average of the participants' models, weighted by similarity to this client."),
        TensorSpec(SEED, "The seed of the random graph; it tells nothing about anyone.", shared=True),
    )

    def __init__(self, settings: FedPubSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        self.maskable = matrices(self.model.shapes()) if settings.masking else ()

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        """tau is 5 where clients overlap, 3 where they do not (appendix B.3)."""
        return super().defaults(context) | {"tau": 5.0 if context.partition == "overlapping" else 3.0}

    def sends(self, name: str) -> bool:
        """What similarity is computed from is sent where it is used; training nodes where models are averaged plainly."""
        s = self.settings
        asked = {
            EMBEDDING: s.matching and s.similarity == "function",
            LABEL_SHARE: s.matching and s.similarity == "label",
            TRAIN_NODES.name: not s.matching,
        }
        return asked.get(name, super().sends(name))

    def needs_classes(self) -> bool:
        """Only to compare clients by their labels."""
        return self.sends(LABEL_SHARE)

    def averages(self) -> bool:
        """For everyone, or for each client by who is like it, where similarities are written out."""
        return not (self.settings.matching and self.many)

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """Masks of ones: training starts with the received weights as they are.

        A mask is kept as its offset from one. Masks stay near one, and what the penalties need is the small difference:
        theta mu - theta_received is (theta - theta_received) + theta offset, which loses nothing to rounding.
        """
        return {MASK + name: torch.zeros_like(weights[name]) for name in self.maskable}

    def receive(self, state: State, down: Message) -> None:
        """Take over the average, and let the masks fade towards one: what they did is in the average already."""
        super().receive(state, down)
        if self.settings.lasting < 1.0 and any(name.startswith(MODEL) for name in down):
            for name in self.maskable:
                state[MASK + name].mul_(self.settings.lasting)

    def trained(self, state: State) -> Weights:
        """Weights and masks."""
        return super().trained(state) | {MASK + name: state[MASK + name] for name in self.maskable}

    def effective(self, state: State) -> Weights:
        """The effective weights: theta * mu = theta + theta offset where there is a mask, theta elsewhere."""
        return masked(self.weights(state), {name: state[MASK + name] for name in self.maskable})

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """Cross-entropy and proximal term at W = theta * mu; then dtheta = dW * mu and dmu = dW * theta."""
        weights = self.weights(state)
        grads, loss = self.effective_gradients(self.effective(state), cohort, dropout)
        pull = 2 * self.settings.proximal
        moved = dropout.step > 0  # at a round's first step theta equals what was received
        out: Weights = {}
        for name, grad in grads.items():
            w, received, offset = weights[name], down.get(MODEL + name), state.get(MASK + name)
            if pull and received is not None and moved:
                grad.add_(w - dense(received), alpha=pull)
            if offset is not None:
                if pull and received is not None:
                    grad.addcmul_(w, offset, value=pull)
                out[MASK + name] = grad * w
                grad.addcmul_(grad, offset)
            out[MODEL + name] = grad
        return out, loss

    def after_step(self, state: State, down: Message) -> None:
        """The proximal step of the L1 term: mu <- sign(mu) max(|mu| - lr lambda1, 0)."""
        shrink = self.settings.lr * self.settings.l1
        if shrink:
            for name in self.maskable:
                shrink_toward_zero(state[MASK + name], shrink)

    def personal(self, state: State) -> State:
        """theta * mu, with the entries under the threshold set to zero."""
        effective = self.effective(state)
        for name in filter(self.prunes, effective):
            prune(effective[name], self.settings.threshold)
        return effective

    def limited(self, name: str, weight: Tensor) -> Tensor:
        """A weight matrix as it is sent: scaled down to `limit` times the norm that the common start has on average."""
        inputs, outputs = weight.shape[-2:]
        most = self.settings.limit * math.sqrt(2 * inputs * outputs / (inputs + outputs))
        norm = torch.linalg.vector_norm(weight.flatten(1), dim=1).clamp_min(most)
        return weight * (most / norm).view(-1, *[1] * (weight.dim() - 1))

    def prunes(self, name: str) -> bool:
        """Whether entries of the weight `name` can be pruned."""
        return bool(self.settings.threshold) and name in self.maskable

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The surviving weights, and what similarity is computed from."""
        sent = personal
        if self.settings.upload == "plain":
            theta = self.weights(state)
            sent = {n: w * (personal[n] != 0) if self.prunes(n) else w for n, w in theta.items()}
        if self.settings.limit:
            sent = sent | {n: self.limited(n, sent[n]) for n in self.maskable}
        message: Message = {MODEL + n: Sparse(w) if self.prunes(n) else w for n, w in sent.items()}
        if self.sends(TRAIN_NODES.name):
            message[TRAIN_NODES.name] = cohort.train_count
        if self.sends(EMBEDDING):
            message[EMBEDDING] = self.embed(personal, cohort, down)
        if self.sends(LABEL_SHARE):
            message[LABEL_SHARE] = label_share(cohort)
        return message

    @torch.no_grad()
    def embed(self, weights: Weights, cohort: Cohort, down: Message) -> Tensor:
        """The functional embedding: [M, H], the node mean of the last graph layer's output before its ReLU."""
        s = self.settings
        if s.graph == "feature":
            return cohort.node_mean(self.at_every_node(weights, cohort).embedding)
        if (s.model, s.layers) == ("gcn", 2):
            graph: RandomGraph = cohort.once(("random graph", s.graph), lambda c: self.common_graph(c, down))
            return functional_embedding(graph, weights)
        graphs: Copies = cohort.once(("random graphs", s.graph), lambda c: self.common_graphs(c, down))
        return embedding_on_copies(graphs, self.model, weights)

    def common_graph(self, cohort: Cohort, down: Message) -> RandomGraph:
        """The random graph that everyone draws from the server's seed."""
        return random_graph(self.settings.graph, int(dense(down[SEED])), self.context.features, cohort.device)

    def common_graphs(self, cohort: Cohort, down: Message) -> Copies:
        """The same as everyone's, for models that need more of it than two GCN layers do."""
        client = random_client(self.settings.graph, int(dense(down[SEED])), self.context.features)
        return Copies(client, cohort.clients, cohort.device)

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """No similarity known yet, a random graph's seed, and (for gradients) the common start."""
        seed = torch.tensor([derive(self.context.seed, "server", "random graph")], dtype=torch.int64)
        clients = self.context.clients
        if self.many:
            server = {EMBEDDING: torch.zeros(clients, self.settings.hidden), SEED: seed}
        else:
            unknown = 0.0 if self.settings.contrast == "none" else 0.5
            server = {"similarity": torch.full((clients, clients), unknown), SEED: seed}
            server[KNOWN] = torch.zeros(clients, clients, dtype=torch.bool)
        if self.settings.similarity == "gradient":
            start = common_start(self.shapes(), self.context.seed, self.context.clients, torch.device("cpu"))
            server |= {"sent." + name: w for name, w in start.items()}
        server |= {DIAGNOSTIC + name: torch.zeros(()) for name in self.noted()}
        if not self.settings.matching:
            server |= self.previous_start()
        return server, {SEED: seed}

    def server_memory(self, sizes: RoundSizes) -> int:
        """A similarity for each pair of clients, its softmax and a copy; beyond MANY clients thin factors instead."""
        clients, kind = self.context.clients, self.settings.similarity
        if self.many:
            thin = 4 * (RANK + 1) * (2 * clients + sizes.upload // 4) + 8 * clients * (self.settings.hidden + 2 * RANK)
            return 2 * thin
        out = super().server_memory(sizes)
        if not self.settings.matching:
            return out
        out += 5 * clients**2 + 8 * sizes.senders * max(sizes.senders, sizes.receivers)
        if kind == "label":
            out += 8 * sizes.senders**2 * self.context.outputs
        if kind == "gradient":
            out += clients * sizes.download + sizes.senders * sizes.upload
        return out + (sizes.senders * sizes.upload if kind == "parameter" and self.settings.contrast != "none" else 0)

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """theta_i = sum_j alpha_ij theta_j, alpha_ij = softmax_j(tau S(i, j)), without the entries client i removed."""
        stacks = {name: dense(value) for name, value in uploads.items() if name.startswith(MODEL)}
        message: Message = {SEED: server[SEED]}
        self.note(server, weight_norm=mean_norm(stacks[MODEL + matrices(self.shapes())[0]]))
        if not self.settings.matching:
            nodes = dense(uploads[TRAIN_NODES.name])
            self.note(server, effective_clients=effective_clients((nodes / nodes.sum()).unsqueeze(0)))
            average = {n: dense(w) for n, w in self.average_all(server, stacks, nodes).items()}
            mixed: Message = {n: w.repeat(len(receivers), *[1] * w.dim()) for n, w in average.items()}
        elif self.many:
            mixed = self.thin_averages(server, uploads, stacks, senders, receivers)
        else:
            found = self.compare(server, uploads, stacks, senders)
            server["similarity"][senders.unsqueeze(1), senders] = found
            note_pairs(server[KNOWN], senders)
            similarity = server["similarity"][receivers][:, senders]
            if len(senders) < self.context.clients:
                similarity = with_typical(similarity, server[KNOWN][receivers][:, senders])
            alpha = self.attention(similarity)
            self.note(server, effective_clients=effective_clients(alpha), similarity_median=pair_median(found))
            own = places_among(senders, receivers, self.context.clients)
            mixed = {n: self.averaging.mix(alpha, w, own) for n, w in stacks.items()}
        for name, w in mixed.items():
            prunes = self.prunes(name.removeprefix(MODEL))
            message[name] = self.kept_by(receivers, dense(w), senders, stacks[name]) if prunes else w
            if self.settings.similarity == "gradient":
                server["sent." + name.removeprefix(MODEL)][receivers] = dense(message[name])
        return message

    def kept_by(self, receivers: Tensor, mixed: Tensor, senders: Tensor, stack: Tensor) -> Sparse:
        """The averages without the entries each receiver itself pruned; one that did not send now gets them all."""
        if senders is receivers:
            return Sparse(mixed.mul_(stack != 0))
        own = places_among(senders, receivers, self.context.clients)
        pruned = (stack == 0)[own.clamp_min(0)] & along(own >= 0, mixed)
        return Sparse(mixed.masked_fill_(pruned, 0.0))

    def compare(self, server: State, uploads: Message, stacks: dict[str, Tensor], senders: Tensor) -> Tensor:
        """S(i, j) between the senders, [n, n]."""
        kind = self.settings.similarity
        if kind == "label":
            return 1.0 - jensen_shannon(dense(uploads[LABEL_SHARE]).clamp(0.0, 1.0))  # noised ones may be outside
        if kind == "function":
            rows = [dense(uploads[EMBEDDING])]
        elif kind == "parameter":
            rows = list(stacks.values())
        else:
            rows = [w - server["sent." + n.removeprefix(MODEL)][senders] for n, w in stacks.items()]
        return self.scaled(cosine([self.contrasted(stack) for stack in rows]), len(senders))

    def contrasted(self, stack: Tensor) -> Tensor:
        """What the cosine is taken of: [n, ...], less the mean over the clients that sent it where `contrast` is centred."""
        return stack - stack.mean(0) if self.settings.contrast == "centred" else stack

    def scaled(self, similarity: Tensor, count: int) -> Tensor:
        """The similarity of a cosine c between n clients: c, or if centred (1 + ((n - 1) c + 1)/n)/2.

        Cosines between n centred vectors are -1/(n - 1) on average; so it is 1/2 on average, and 1 between a client and itself,
        however many clients there are. That is the range which the paper's cosines have in the first round.
        """
        if self.settings.contrast == "none":
            return similarity
        return (1.0 + ((count - 1) * similarity + 1.0) / count) / 2.0

    def attention(self, similarity: Tensor) -> Tensor:
        """softmax(tau S) over the senders; with explicit communities only over those more similar than 0.5."""
        score = self.settings.tau * similarity
        if self.settings.communities == "explicit":
            member = similarity > COMMUNITY
            # A client that resembles nobody who sent (it did not send itself) falls back to all of them.
            member |= ~member.any(dim=1, keepdim=True)
            score = score.masked_fill(~member, -torch.inf)
        return torch.softmax(score, dim=1)

    @property
    def many(self) -> bool:
        """Whether there are so many clients that their similarities are not written out (`fedquilt.nn.kernel_average`)."""
        s = self.settings
        thin = s.matching and s.similarity == "function" and s.communities == "implicit"
        return thin and self.context.clients > MANY

    def thin_averages(
        self, server: State, uploads: Message, stacks: dict[str, Tensor], senders: Tensor, receivers: Tensor
    ) -> Message:
        """The same averages as products of thin factors, multiplied out cohort by cohort (`Factored`).

        A receiver that did not send now is as it was when it last did.
        """
        sent = F.normalize(self.contrasted(dense(uploads[EMBEDDING])), dim=1)
        server[EMBEDDING][senders] = sent
        mine = places_among(senders, receivers, self.context.clients)
        theirs = sent if receivers is senders else server[EMBEDDING][receivers]
        # A softmax over senders is the same whatever is added to all of their similarities.
        slope = 1.0 if self.settings.contrast == "none" else (len(sent) - 1) / (2 * len(sent))
        left, right, own = shares(sent, theirs, slope * self.settings.tau, mine)
        self.note_sample(server, sent, left, right, own, mine)
        message: Message = {}
        for name, stack in stacks.items():
            aligned = stack if receivers is senders else stack[mine.clamp_min(0)]
            message[name] = Factored(left, thin_product(right, stack), own, aligned)
        return message

    def note_sample(self, server: State, sent: Tensor, left: Tensor, right: Tensor, own: Tensor, mine: Tensor) -> None:
        """The diagnostics of thin averages, of at most SAMPLE receivers and as many senders, evenly spaced."""
        rows = torch.linspace(0, len(left) - 1, min(SAMPLE, len(left)), device=left.device).long()
        alpha = left[rows] @ right
        alpha = alpha.scatter_add(1, mine[rows].clamp_min(0).unsqueeze(1), own[rows].unsqueeze(1)).clamp_min(0.0)
        some = sent[torch.linspace(0, len(sent) - 1, min(SAMPLE, len(sent)), device=sent.device).long()]
        found = effective_clients(alpha / alpha.sum(1, keepdim=True))
        similarity = self.scaled(some @ some.T, len(sent))
        self.note(server, effective_clients=found, similarity_median=pair_median(similarity))

    # -- clients that come after training ----------------------------------------------------------------------------

    def newcomer_sends(self) -> tuple[str, ...]:
        """What is compared; nothing where models are averaged plainly."""
        compared = {"function": EMBEDDING, "label": LABEL_SHARE}.get(self.settings.similarity, MODEL + "*")
        return (compared,) if self.settings.matching else ()

    def keeps_uploads(self) -> bool:
        """Averages are made of the clients' models."""
        return True

    def newcomer_state(self, server: State) -> State:
        """The clients' models with what is compared, and the seed of the random graph."""
        return part(server, STANDING) | {SEED: server[SEED]}

    def newcomer_greeting(self, server: State) -> Message:
        """The average of all models, and the seed of the random graph."""
        nodes = server.get(TRAIN_NODES.name)
        average = {n: self.averaging.average(w, nodes) for n, w in server.items() if n.startswith(MODEL)}
        return {SEED: server[SEED], **average}

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """theta_i = sum_j alpha_ij theta_j over the clients that trained, alpha_ij = softmax_j(tau S(i, j))."""
        if not self.settings.matching:
            return self.newcomer_greeting(server)
        alpha = self.attention(self.compare_newcomers(server, uploads))
        mixed: Message = {
            n: self.averaging.mix(alpha, w, strangers(alpha)) for n, w in server.items() if n.startswith(MODEL)
        }
        return {SEED: server[SEED], **mixed}

    def compare_newcomers(self, server: State, uploads: Message) -> Tensor:
        """S(i, j) between newcomers and the clients that trained: [n, M].

        With similarity = gradient, how models differ from the average of those of the clients that trained.
        """
        kind = self.settings.similarity
        if kind == "label":
            both = torch.cat([server[LABEL_SHARE], dense(uploads[LABEL_SHARE])]).clamp(0.0, 1.0)
            trained = len(server[LABEL_SHARE])
            return 1.0 - jensen_shannon(both)[trained:, :trained]
        names = [EMBEDDING] if kind == "function" else [name for name in server if name.startswith(MODEL)]
        known = [server[name] for name in names]
        centred = kind == "gradient" or self.settings.contrast == "centred"
        middle = [stack.mean(0) if centred else torch.zeros_like(stack[0]) for stack in known]
        theirs = [stack - mean for stack, mean in zip(known, middle, strict=True)]
        mine = [dense(uploads[name]) - mean for name, mean in zip(names, middle, strict=True)]
        return self.scaled(cross_cosine(mine, theirs), len(known[0]))

    # -- what reports show -----------------------------------------------------------------------------------------

    def noted(self) -> tuple[str, ...]:
        """The names of the diagnostics; there is no similarity to show where clients are not matched."""
        names = ("weight_norm", "effective_clients", "similarity_median")
        return names if self.settings.matching else names[:2]

    def note(self, server: State, **found: Tensor) -> None:
        """Store diagnostics in the server's state, in place."""
        for name, value in found.items():
            server[DIAGNOSTIC + name].copy_(value)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """The mean norm of the first matrix as uploaded, the clients that an average takes in, and the median similarity."""
        return {name: server[DIAGNOSTIC + name] for name in self.noted()}

    def similarity(self, server: State) -> Tensor | None:
        """S as last computed between each pair of clients; not where there are many."""
        return server["similarity"] if self.settings.matching and not self.many else None


def thin_product(right: Tensor, stack: Tensor) -> Tensor:
    """right [k, n] times stack [n, ...] -> [k, ...], some clients at a time where they are offloaded to disk."""
    parts = [right[:, rows] @ piece.flatten(1) for rows, piece in row_chunks(stack)]
    return torch.stack(parts).sum(0).view(-1, *stack.shape[1:])


def shrink_toward_zero(offset: Tensor, amount: float) -> None:
    """mu <- sign(mu) max(|mu| - amount, 0) for mu = 1 + offset, in place."""
    if not offset.is_cuda and float(offset.min()) >= amount - 1.0:  # no mask is near zero: the usual case, in one pass
        offset.sub_(amount)
    else:
        shrunk = torch.where(offset < -1.0, (offset + amount).clamp_max(-1.0), (offset - amount).clamp_min(-1.0))
        offset.copy_(shrunk)


def prune(weight: Tensor, threshold: float) -> None:
    """Set to zero, in place, what is under `threshold` times each client's mean absolute entry: [M, in, out]."""
    size = weight.abs()
    weight.mul_(size >= threshold * size.mean(dim=(1, 2), keepdim=True))


def cosine(stacks: list[Tensor]) -> Tensor:
    """Cosine between clients over all given tensors together: list of [n, ...] -> [n, n], without joining them."""
    flat = [stack.flatten(1) for stack in stacks]
    product = torch.stack([one @ one.T for one in flat]).sum(0)
    norm = product.diagonal().clamp_min(1e-30).sqrt()
    return product / (norm.unsqueeze(1) * norm)


def jensen_shannon(share: Tensor) -> Tensor:
    """Jensen-Shannon divergence in bits between all pairs of rows: [n, C] -> [n, n], in [0, 1]."""

    def entropy(p: Tensor) -> Tensor:
        return -torch.special.xlogy(p, p).sum(-1) / np.log(2.0)

    middle = (share.unsqueeze(1) + share.unsqueeze(0)) / 2
    own = entropy(share)
    return (entropy(middle) - (own.unsqueeze(1) + own.unsqueeze(0)) / 2).clamp(0.0, 1.0)


def label_share(cohort: Cohort) -> Tensor:
    """[M, C]: how each client's training labels are distributed."""
    classes = class_count(cohort)
    ones = F.one_hot(labels(cohort)[cohort.train], classes).float() * cohort.train_weight.unsqueeze(1)
    return torch.zeros(cohort.clients, classes, device=cohort.device).index_add_(0, cohort.client[cohort.train], ones)
