"""A personal model as a `torch.nn.Module` on PyTorch Geometric's `Data`.

    from fedquilt.export import module_of, save_module, load_module

    module = module_of("site.yaml")                              # a site's own model
    module = module_of(fedquilt.load_run("my-run"), client=3)    # or that of a simulated client
    logits = module(data)                                        # data.x, data.edge_index -> [n, C]
    save_module(module, "my-model")                              # model.safetensors and model.json, no pickle
    module = load_module("my-model")

The module runs the method's own network, so that fedquilt has to be installed where it is used.
"""

from fedquilt.export.module import PersonalModule
from fedquilt.export.sources import module_of, module_of_personal
from fedquilt.export.storage import load_module, save_module
from fedquilt.methods.personal_model import Personal, model_facts

__all__ = [
    "Personal",
    "PersonalModule",
    "load_module",
    "model_facts",
    "module_of",
    "module_of_personal",
    "save_module",
]
