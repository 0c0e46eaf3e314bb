"""Qwen2 and Qwen3 decoders small enough to train on one CPU core, and what trains and saves them.

Parameter names are those of Hugging Face's Qwen2ForCausalLM and Qwen3ForCausalLM, so named_parameters() is the checkpoint.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), 1e-6)


def rotate(y, cos, sin):
    y1, y2 = y.chunk(2, -1)
    return torch.cat((y1 * cos - y2 * sin, y2 * cos + y1 * sin), -1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dim = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
        self.group = c["num_attention_heads"] // c["num_key_value_heads"]
        bias, hidden = c["model_type"] == "qwen2", c["hidden_size"]
        self.q_proj = nn.Linear(hidden, c["num_attention_heads"] * self.dim, bias)
        self.k_proj = nn.Linear(hidden, c["num_key_value_heads"] * self.dim, bias)
        self.v_proj = nn.Linear(hidden, c["num_key_value_heads"] * self.dim, bias)
        self.o_proj = nn.Linear(c["num_attention_heads"] * self.dim, hidden, False)
        if not bias:
            self.q_norm, self.k_norm = Norm(self.dim), Norm(self.dim)

    def forward(self, x, cos, sin, unseen):
        """x [B, T, hidden]; cos and sin [.., T, 1, dim / 2]; unseen [.., T, T]: keys that a query does not see"""
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, -1, self.dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)

        q, k, v = (y.transpose(1, 2) for y in (rotate(q, cos, sin), rotate(k, cos, sin), v))
        k, v = k.repeat_interleave(self.group, 1), v.repeat_interleave(self.group, 1)
        # written out: at these lengths its backward pass is faster on a CPU than that of the fused kernel
        y = (q @ k.mT * self.dim ** -0.5).masked_fill(unseen, -torch.inf).softmax(-1).to(v.dtype) @ v
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.self_attn = Norm(c["hidden_size"]), Attention(c)
        self.post_attention_layernorm, self.mlp = Norm(c["hidden_size"]), Mlp(c)

    def forward(self, x, cos, sin, unseen):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, unseen)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])


def initialize(network, c):
    """Random matrices of the configuration's deviation, less where they end a residual branch; biases are zero."""
    for name, p in network.named_parameters():
        if p.dim() >= 2:
            ends = any(part in name for part in ("o_proj", "down_proj", "attn.proj", "mlp.linear_fc2"))
            depth = (2 * c["num_hidden_layers"]) ** -0.5 if ends else 1.0
            nn.init.normal_(p, std=c["initializer_range"] * depth)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


class Network(nn.Module):
    """Qwen2 or Qwen3 decoder with tied embeddings. Weights are kept in F32, products are taken in BF16."""

    def __init__(self, c):
        super().__init__()
        self.model = Body(c)
        dim = self.model.layers[0].self_attn.dim
        angle = torch.outer(torch.arange(1024.0), c["rope_theta"] ** (-torch.arange(0, dim, 2) / dim))[:, None]
        self.cos, self.sin = angle.cos().bfloat16(), angle.sin().bfloat16()
        initialize(self, c)

    def forward(self, ids, rows):
        """ids [B, T]; rows: flat indices of the positions whose logits are wanted -> [len(rows), vocab]"""
        with torch.autocast("cpu", torch.bfloat16):
            x = self.model.embed_tokens(ids).bfloat16()
            cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
            later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
            for layer in self.model.layers:
                x = layer(x, cos, sin, later)
            return F.linear(self.model.norm(x.flatten(0, 1)[rows]), self.model.embed_tokens.weight)


class Muon:
    """Momentum whose direction is made orthogonal by a Newton-Schulz iteration; equal shapes go through it together."""

    def __init__(self, params):
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.momentum = {shape: torch.zeros(len(ps), *shape) for shape, ps in self.groups.items()}

    @torch.no_grad()
    def step(self, lr):
        for shape, params in self.groups.items():
            moved = [i for i, p in enumerate(params) if p.grad is not None]
            if not moved:
                continue
            params = [params[i] for i in moved]
            grad = torch.stack([p.grad for p in params])
            momentum = self.momentum[shape][moved].lerp_(grad, 0.05)
            self.momentum[shape][moved] = momentum
            x = grad.lerp(momentum, 0.95).bfloat16()
            tall = shape[0] > shape[1]
            x = x.mT if tall else x
            x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            x = (x.mT if tall else x).float() * max(1.0, shape[0] / shape[1]) ** 0.5
            for p, update in zip(params, x):
                p.mul_(1 - 0.02 * lr).sub_(update, alpha=lr)
                p.grad = None


class Learner:
    """Steps a network whose gradients are computed: Muon for matrices, Adam for the rest."""

    def __init__(self, network):
        self.network, self.average = network, copy.deepcopy(network)  # of a hundred steps or so: better than the last one
        matrices = [p for n, p in network.named_parameters() if is_matrix(n, p)]
        kinds = [[], []]  # a kernel over pixels sums so many of them that its weights have to move slowly
        for n, p in network.named_parameters():
            if not is_matrix(n, p):
                kinds["patch_embed" in n].append(p)
        self.others = sum(kinds, [])
        self.muon = Muon(matrices)
        groups = [{"params": params, "share": share} for params, share in zip(kinds, (1.0, 0.05)) if params]
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)

    def step(self, rate, step):
        torch.nn.utils.clip_grad_norm_(self.others, 1.0)
        self.muon.step(0.02 * rate)
        for group in self.adam.param_groups:
            group["lr"] = 0.004 * rate * group["share"]
        self.adam.step()
        self.adam.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), max(0.01, 1 / step))


    def state_dict(self):
        return {"network": self.network.state_dict(), "average": self.average.state_dict(), "adam": self.adam.state_dict(),
                "momentum": list(self.muon.momentum.values())}

    def load_state_dict(self, state):
        for part in ("network", "average", "adam"):
            getattr(self, part).load_state_dict(state[part])
        self.muon.momentum = dict(zip(self.muon.momentum, state["momentum"]))


def is_matrix(name, p):
    return p.dim() == 2 and "embed" not in name


def is_saved(name):
    """What serves the training alone has another name."""
    return name.startswith("model.")


def save_weights(network, out):
    from safetensors.torch import save_file
    out.mkdir(parents=True, exist_ok=True)
    save_file({n: p.detach().bfloat16().contiguous() for n, p in network.named_parameters() if is_saved(n)},
              out / "model.safetensors", {"format": "pt"})
