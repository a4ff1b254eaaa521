"""Reference values of R-GCN, for the comparison of `rgcn` with PyTorch Geometric (oracle 14).

  python rgcn.py [REFERENCE]   needs numpy, torch and torch_geometric; REFERENCE is the folder with g_small.npz and
                               g_medium.npz (default: $ARCHIPELAGO_REFERENCE). Writes beside itself:

rgcn_small.npz, rgcn_medium.npz
    one layer, PyG's RGCNConv(F, C, num_relations=4, num_bases=2, aggr="mean", root_weight=True, bias=True):

        out_i = W_self x_i + sum over r of 1/|in_r(i)| * sum over j in in_r(i) of W_r x_j + b
        W_r   = sum over k of comp[r, k] * basis_k

    in_r(i) are the in-edges of i of type r; a type without any adds nothing. C = 4 (small) or 6 (medium), as in the other
    reference files.
model_rgcn.npz
    on g_medium: such a layer of 16, ReLU, such a layer of 5; softmax cross-entropy, averaged over `train_idx`, and steps of the
    optimisers of the other model files.

Arrays are named as in the other reference files: `num_nodes`, `edge_index` [2, E], `x`, `param_<p>`, `upstream` (dL/d`out`), `out`,
`grad_x`, `grad_<p>`; of models `y`, `train_idx`, `logits`, `loss`, `l1_` and `l2_` before the parameters of the two layers,
`<o>_step1_<p>`, `<o>_step2_<p>`, `<o>_step10_<p>`, `<o>_losses`. New:

    edge_type          int64 [E]   (3 source + 5 destination + place in edge_index) mod 4: the graphs have no types of their own
    param_comp         [4, 2]      coefficients of the bases, by type
    param_basis        [2 * C, F]  the bases one below the other, each [out, in]
    param_weight_self  [C, F]
    param_bias         [C]

Inputs and parameters are float32 numbers; everything was computed from them in float64 and rounded to float32 once. Every layer is
computed a second time from the formula, edge by edge in numpy, and must agree within 1e-12. Prints how far a float32 run is off.
"""
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import RGCNConv

TYPES, BASES = 4, 2
HERE = Path(__file__).resolve().parent
# What the other model files are stepped with.
OPTIMIZERS = {
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.01),
    "adam_l2": lambda weights: torch.optim.Adam(weights, lr=0.01, weight_decay=5e-4),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=5e-4),
    "sgd_momentum": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
}


def drawn(rng, *shape, scale=1.0):
    """Normal numbers that float32 holds exactly."""
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def graph(folder, size):
    found = dict(np.load(folder / f"g_{size}.npz"))
    sources, targets = found["edge_index"]
    found["edge_type"] = (3 * sources + 5 * targets + np.arange(sources.size)) % TYPES
    assert sorted(set(found["edge_type"])) == list(range(TYPES))
    return found


def weights_of_layer(rng, inputs, outputs):
    return {
        "comp": drawn(rng, TYPES, BASES),
        "basis": drawn(rng, BASES * outputs, inputs, scale=inputs**-0.5),
        "weight_self": drawn(rng, outputs, inputs, scale=inputs**-0.5),
        "bias": drawn(rng, outputs, scale=0.5),
    }


def layer(weights, dtype):
    """PyG's layer with these weights; it holds matrices as [in, out]."""
    outputs, inputs = weights["weight_self"].shape
    made = RGCNConv(inputs, outputs, TYPES, num_bases=BASES, aggr="mean", root_weight=True, bias=True).to(dtype)
    of = lambda name: torch.from_numpy(weights[name]).to(dtype)
    with torch.no_grad():
        made.comp.copy_(of("comp"))
        made.weight.copy_(of("basis").view(BASES, outputs, inputs).transpose(1, 2))
        made.root.copy_(of("weight_self").T)
        made.bias.copy_(of("bias"))
    return made


def ours(comp, weight, root, bias):
    """What PyG calls comp, weight, root and bias, in our names and shapes."""
    plain = lambda tensor: tensor.detach().numpy()
    basis = plain(weight).transpose(0, 2, 1).reshape(-1, weight.shape[1])
    return {"comp": plain(comp), "basis": basis, "weight_self": plain(root).T, "bias": plain(bias)}


def values(made, prefix=""):
    named = ours(made.comp, made.weight, made.root, made.bias)
    return {prefix + name: value.copy() for name, value in named.items()}


def gradients(made, prefix=""):
    named = ours(made.comp.grad, made.weight.grad, made.root.grad, made.bias.grad)
    return {f"grad_{prefix}{name}": value.copy() for name, value in named.items()}


def by_the_formula(weights, x, edge_index, edge_type):
    outputs, inputs = weights["weight_self"].shape
    wide = {name: value.astype(np.float64) for name, value in weights.items()}
    bases = wide["basis"].reshape(BASES, outputs, inputs)
    out = x @ wide["weight_self"].T + wide["bias"]
    of_type = {}
    for (source, target), kind in zip(edge_index.T, edge_type):
        of_type.setdefault((target, kind), []).append(source)
    for (target, kind), sources in of_type.items():
        matrix = sum(wide["comp"][kind, k] * bases[k] for k in range(BASES))
        out[target] += matrix @ x[sources].mean(axis=0)
    return out


def layer_run(found, weights, upstream, dtype):
    made = layer(weights, dtype)
    x = torch.from_numpy(found["x"]).to(dtype).requires_grad_()
    out = made(x, torch.from_numpy(found["edge_index"]), torch.from_numpy(found["edge_type"]))
    (out * torch.from_numpy(upstream).to(dtype)).sum().backward()
    return {"out": out.detach().numpy(), "grad_x": x.grad.numpy(), **gradients(made)}


def layer_case(found, width, seed):
    rng = np.random.default_rng(seed)
    nodes, features = found["x"].shape
    weights, upstream = weights_of_layer(rng, features, width), drawn(rng, nodes, width)
    result = layer_run(found, weights, upstream, torch.float64)
    again = by_the_formula(weights, found["x"].astype(np.float64), found["edge_index"], found["edge_type"])
    assert np.abs(again - result["out"]).max() < 1e-12
    show_rounding(result, layer_run(found, weights, upstream, torch.float32))
    graph_arrays = {name: found[name] for name in ("num_nodes", "edge_index", "edge_type", "x")}
    return {**graph_arrays, **{f"param_{p}": v for p, v in weights.items()}, "upstream": upstream, **result}


class Model:
    """Two layers with ReLU between them, and the loss on the training nodes."""

    def __init__(self, found, weights, dtype=torch.float64):
        self.layers = [layer(weights[prefix], dtype) for prefix in ("l1_", "l2_")]
        self.x = torch.from_numpy(found["x"]).to(dtype)
        self.edges = [torch.from_numpy(found[name]) for name in ("edge_index", "edge_type")]
        self.train, self.y = (torch.from_numpy(found[name]) for name in ("train_idx", "y"))

    def parameters(self):
        return [weight for made in self.layers for weight in made.parameters()]

    def logits(self):
        first, second = self.layers
        return second(torch.relu(first(self.x, *self.edges)), *self.edges)

    def loss(self, logits):
        return torch.nn.functional.cross_entropy(logits[self.train], self.y[self.train])

    def named(self, of):
        return {**of(self.layers[0], "l1_"), **of(self.layers[1], "l2_")}

    def run(self):
        logits = self.logits()
        loss = self.loss(logits)
        loss.backward()
        return {"logits": logits.detach().numpy(), "loss": loss.detach().numpy().reshape(1), **self.named(gradients)}


def steps(model, name):
    optimizer, losses, after = OPTIMIZERS[name](model.parameters()), [], {}
    for step in range(11):
        optimizer.zero_grad()
        loss = model.loss(model.logits())
        losses.append(loss.item())
        if step in (1, 2, 10):
            after.update({f"{name}_step{step}_{p}": v for p, v in model.named(values).items()})
        loss.backward()
        optimizer.step()
    return {**after, f"{name}_losses": np.array(losses)}


def model_case(found, seed):
    rng = np.random.default_rng(seed)
    weights = {"l1_": weights_of_layer(rng, found["x"].shape[1], 16), "l2_": weights_of_layer(rng, 16, 5)}
    result = Model(found, weights).run()
    show_rounding(result, Model(found, weights, torch.float32).run())
    for name in OPTIMIZERS:
        result.update(steps(Model(found, weights), name))
    inputs = {name: found[name] for name in ("num_nodes", "edge_index", "edge_type", "x", "y", "train_idx")}
    parameters = {f"param_{prefix}{p}": v for prefix, layer in weights.items() for p, v in layer.items()}
    return {**inputs, **parameters, **result}


def show_rounding(exact, rough):
    relative = lambda name: np.abs(exact[name] - rough[name]).max() / np.abs(exact[name]).max()
    print("  float32 is off by", {name: f"{relative(name):.0e}" for name in exact})


def save(name, arrays):
    narrow = lambda array: array.astype(np.float32) if array.dtype.kind == "f" else array
    np.savez_compressed(HERE / f"{name}.npz", **{key: np.ascontiguousarray(narrow(a)) for key, a in arrays.items()})


if __name__ == "__main__":
    reference = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["ARCHIPELAGO_REFERENCE"])
    for size, width, seed in (("small", 4, 1), ("medium", 6, 2)):
        print("rgcn", size)
        save(f"rgcn_{size}", layer_case(graph(reference, size), width, seed))
    print("model_rgcn")
    save("model_rgcn", model_case(graph(reference, "medium"), 3))
