"""A personal model as a plain `torch.nn.Module` on PyTorch Geometric's `Data`, with no fedquilt in its forward pass.

    from fedquilt.export import module_of, save_module, load_module

    module = module_of("site.yaml")                              # a site's own model
    module = module_of(fedquilt.load_run("my-run"), client=3)    # or that of a simulated client
    logits = module(data)                                        # data.x, data.edge_index -> [n, C]
    save_module(module, "my-model")                              # model.safetensors and model.json, no pickle

`networks.py` is what runs then; it needs torch alone.
"""

from fedquilt.export.conversion import module_of_personal
from fedquilt.export.personal import Personal, model_facts
from fedquilt.export.sources import module_of
from fedquilt.export.storage import load_module, save_module

__all__ = ["Personal", "load_module", "model_facts", "module_of", "module_of_personal", "save_module"]
