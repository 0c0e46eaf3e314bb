"""Qwen3-VL small enough to train on one CPU core: a vision tower in front of the decoder of demo_network.py.

Parameter names are those of Hugging Face's Qwen3VLForConditionalGeneration, so named_parameters() is the checkpoint. All
pictures of a batch have one size; a batch is made by tools/train_demo_vl.py.
"""

import torch
import torch.nn.functional as F
from torch import nn

from demo_network import Body, initialize, rotate


def rotary(angle):
    return angle.cos().bfloat16(), angle.sin().bfloat16()


class PatchEmbed(nn.Module):
    def __init__(self, v):
        super().__init__()
        size = (v["temporal_patch_size"], v["patch_size"], v["patch_size"])
        self.proj = nn.Conv3d(v["in_channels"], v["hidden_size"], size, size)

    def forward(self, pixels):
        """pixels [.., 3 * 16 * 16]: both frames of a still picture are the same, so their kernels add up"""
        return F.linear(pixels, self.proj.weight.sum(2).flatten(1), self.proj.bias)


class VisionAttention(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.heads = v["num_heads"]
        self.qkv = nn.Linear(v["hidden_size"], 3 * v["hidden_size"])
        self.proj = nn.Linear(v["hidden_size"], v["hidden_size"])

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1).to(v.dtype) @ v
        return self.proj(y.transpose(1, 2).flatten(2))


class VisionMlp(nn.Module):
    def __init__(self, size, middle, out, approximate):
        super().__init__()
        self.linear_fc1, self.linear_fc2 = nn.Linear(size, middle), nn.Linear(middle, out)
        self.approximate = approximate

    def forward(self, x):
        return self.linear_fc2(F.gelu(self.linear_fc1(x), approximate=self.approximate))


class Block(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(v["hidden_size"], eps=1e-6) for _ in range(2))
        self.attn = VisionAttention(v)
        self.mlp = VisionMlp(v["hidden_size"], v["intermediate_size"], v["hidden_size"], "tanh")

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Merger(VisionMlp):
    """Four patches to one token; DeepStack's normalises them together, the main one each patch alone."""

    def __init__(self, v, together):
        four = v["hidden_size"] * v["spatial_merge_size"] ** 2
        super().__init__(four, four, v["out_hidden_size"], "none")
        self.four, self.together = four, together
        self.norm = nn.LayerNorm(four if together else v["hidden_size"], eps=1e-6)

    def forward(self, x):
        b = x.shape[0]
        x = self.norm(x.reshape(b, -1, self.four)) if self.together else self.norm(x).reshape(b, -1, self.four)
        return super().forward(x)


class Tower(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.taps = v["deepstack_visual_indexes"]
        self.side = round(v["num_position_embeddings"] ** 0.5)
        self.dim = v["hidden_size"] // v["num_heads"]
        self.patch_embed = PatchEmbed(v)
        self.pos_embed = nn.Embedding(v["num_position_embeddings"], v["hidden_size"])
        self.blocks = nn.ModuleList(Block(v) for _ in range(v["depth"]))
        self.merger = Merger(v, False)
        self.deepstack_merger_list = nn.ModuleList(Merger(v, True) for _ in self.taps)
        self.tables = {}

    def _tables(self, h, w):
        """Of a grid of h x w patches in merge-block order: shares of the position embeddings [P, N], angles [P, dim / 2]."""
        if (h, w) not in self.tables:
            row, column = (merge_blocks(y).flatten() for y in torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij"))
            shares = [torch.zeros(h * w, self.side) for _ in range(2)]
            for share, index, size in zip(shares, (row, column), (h, w)):
                at = torch.linspace(0, self.side - 1, size)[index]
                low = at.int().long()
                share.scatter_add_(1, low[:, None], (1 - at + low)[:, None])
                share.scatter_add_(1, (low + 1).clamp(max=self.side - 1)[:, None], (at - low)[:, None])
            rate = 10000.0 ** (-torch.arange(0, self.dim // 2, 2) / (self.dim // 2))
            angle = torch.cat((row[:, None] * rate, column[:, None] * rate), -1)
            self.tables[h, w] = (shares[0][:, :, None] * shares[1][:, None]).flatten(1), *rotary(angle)
        return self.tables[h, w]

    def forward(self, pixels, h, w):
        """pixels [B, P, 768] -> tokens of the main merger and of each DeepStack merger, each [B, P / 4, out]"""
        shares, cos, sin = self._tables(h, w)
        x = (self.patch_embed(pixels) + shares @ self.pos_embed.weight).bfloat16()
        deep = []
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin)
            if i in self.taps:
                deep.append(self.deepstack_merger_list[self.taps.index(i)](x))
        return self.merger(x), deep


def merge_blocks(x):
    """[h, w, ..] -> [h / 2 * w / 2, 4, ..]: the four patches of a token stand together"""
    h, w = x.shape[:2]
    return x.unflatten(1, (w // 2, 2)).unflatten(0, (h // 2, 2)).transpose(1, 2).flatten(0, 1).flatten(1, 2)


def patches(pictures):
    """uint8 [B, H, W, 3] -> [B, P, 768] of -1 to 1, rows in merge-block order, each (colour, y, x)"""
    b, height, width, _ = pictures.shape
    x = pictures.view(b, height // 16, 16, width // 16, 16, 3).permute(1, 3, 0, 5, 2, 4)
    return merge_blocks(x).flatten(0, 1).transpose(0, 1).flatten(2).float() / 127.5 - 1


class VlNetwork(nn.Module):
    """Weights are kept in F32, products are taken in BF16."""

    def __init__(self, config, num_hints):
        super().__init__()
        c = config["text_config"]
        self.model = nn.Module()
        self.model.visual = Tower(config["vision_config"])
        self.model.language_model = Body(c)
        dim, sections = c["head_dim"], c["rope_scaling"]["mrope_section"]
        self.rates = c["rope_theta"] ** (-torch.arange(0, dim, 2) / dim)
        self.axis = torch.tensor([j % 3 if j < 3 * sections[j % 3] else 0 for j in range(dim // 2)])  # of a frequency
        self.hints = nn.Linear(c["hidden_size"], num_hints)  # of training only: says what stands at a token of a picture
        initialize(self, c)
        nn.init.normal_(self.model.visual.pos_embed.weight, std=0.3)  # to be heard beside the pixels

    def look(self, batch):
        """The tower's tokens and DeepStack tokens, and what it says of each token [N, tokens, num_hints]."""
        h, w = (n // 16 for n in batch.pictures.shape[1:3])
        with torch.autocast("cpu", torch.bfloat16):
            tokens, deep = self.model.visual(patches(batch.pictures), h, w)
            return tokens, deep, self.hints(tokens)

    def forward(self, batch, tokens, deep):
        """Logits [len(rows), vocab] where the batch has targets, from what look() gave."""
        text = self.model.language_model
        with torch.autocast("cpu", torch.bfloat16):
            x = text.embed_tokens(batch.ids).bfloat16().flatten(0, 1)
            x = x.index_copy(0, batch.seen, tokens.flatten(0, 1)).unflatten(0, batch.ids.shape)
            cos, sin = rotary((batch.positions[..., self.axis] * self.rates)[:, :, None])
            for i, layer in enumerate(text.layers):
                x = layer(x, cos, sin, batch.unseen)
                if i < len(deep):
                    x = x.flatten(0, 1).index_add(0, batch.seen, deep[i].flatten(0, 1)).unflatten(0, batch.ids.shape)
            return F.linear(text.norm(x.flatten(0, 1)[batch.rows]), text.embed_tokens.weight)
