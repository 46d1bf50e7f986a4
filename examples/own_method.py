"""A method of your own: clients share their first layer, and keep the rest."""

import fedquilt
from fedquilt.messages.message import TensorSpec, dense
from fedquilt.methods.base import register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.settings import BackboneSettings


@register("first-layer")
class FirstLayer(BackboneMethod):
    """The server averages the first layer; the second layer and the classifier stay at the client."""

    title = "First layer"
    paper = "a tutorial"
    Settings = BackboneSettings
    uploads = (TensorSpec(MODEL + "conv1.*", "The client's first layer after training."),)
    downloads = (TensorSpec(MODEL + "conv1.*", "The average of the participants' first layers.", shared=True),)

    def upload(self, state, personal, cohort, down):
        return {MODEL + name: weight for name, weight in personal.items() if name.startswith("conv1")}

    def aggregate(self, server, uploads, senders, receivers):
        return {name: self.averaging.average(dense(stack)) for name, stack in uploads.items()}

    def averages(self):  # so that --aggregation can replace the mean
        return True


if __name__ == "__main__":
    few_labels = {"partition": "natural", "split": "5/45/50", "rounds": 40, "seeds": [0]}
    for method in ("local", "first-layer", "fedavg"):
        run = fedquilt.run(method, "patchwork", **few_labels)
        megabytes = sum(seed["upload_bytes"] for seed in run.result["seeds"]) / 1e6
        print(f"{run}, {megabytes:.1f} MB sent")
