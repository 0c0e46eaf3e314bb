#!/usr/bin/env python3
"""Makes test/data/quantized: tiny quantised checkpoints, packed by the formats' own packages.

The weights are random and rounded to codes here; AutoAWQ, AutoGPTQ, compressed-tensors and torch
write the codes down. `logits.npy` is what transformers computes in FP32 with the dequantised
weights, `hashes.json` has a hash of the FP32 bytes of each dequantised matrix.

    pip download --no-deps --no-binary :all: autoawq==0.2.9 auto-gptq==0.7.1    # then unpack both
    python3 tools/make_quantized_goldens.py AUTOAWQ_DIR AUTO_GPTQ_DIR           # writes test/data/quantized
    python3 tools/make_quantized_goldens.py --check AUTOAWQ_DIR AUTO_GPTQ_DIR   # compares with what is there
"""
import argparse
import dataclasses
import importlib
import json
import math
import pathlib
import shutil
import sys
import tempfile
import types

import numpy as np
import torch
import transformers
from compressed_tensors.compressors import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from make_goldens import Case, compare, make_config, randomise
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "test" / "data" / "quantized"
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
E4M3_BLOCK = 128


@dataclasses.dataclass
class Matrix:
    """value[out, in] = (codes - zeros of the group) * scales of the group."""

    codes: torch.Tensor  # [out, in]
    zeros: torch.Tensor  # [out, groups]
    scales: torch.Tensor  # [out, groups], of the file's type
    bits: int
    group: int

    def values(self):
        wide = [t.float().repeat_interleave(self.group, dim=1) for t in (self.zeros, self.scales)]
        return (self.codes.float() - wide[0]) * wide[1]


def quantise(weight, scheme, dtype):
    """Rounds to nearest; zeros of asymmetric schemes are from 1 on, as AutoGPTQ can store them."""
    out, width = weight.shape
    group = scheme.group if scheme.group > 0 else width
    grouped = weight.float().reshape(out, width // group, group)
    top = 2**scheme.bits - 1
    if scheme.symmetric:
        scales = (grouped.abs().amax(-1) / (top // 2)).to(dtype)
        zeros = torch.full(scales.shape, (top + 1) // 2)
    else:
        low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
        scales = ((high - low) / top).to(dtype)
        zeros = torch.round(-low / scales.float()).clamp(1, top).int()
    codes = torch.round(grouped / scales.float()[..., None]) + zeros[..., None]
    return Matrix(codes.clamp(0, top).int().reshape(out, width), zeros.int(), scales, scheme.bits, group)


def import_from(folder, package, module):
    """A module of an unpacked package without the package's own imports."""
    if package not in sys.modules:
        for name in (package, *(f"{package}.{part}" for part in module.split(".")[:-1])):
            stub = types.ModuleType(name)
            stub.__path__ = [str(folder / name.replace(".", "/"))]
            sys.modules[name] = stub
        utils = types.ModuleType(package + ".utils")
        utils.__path__ = [str(folder / package / "utils")]
        sys.modules[package + ".utils"] = utils
        sys.modules.setdefault("accelerate", types.ModuleType("accelerate"))
    return importlib.import_module(f"{package}.{module}")


def as_linear(m):
    out, width = m.codes.shape
    linear = torch.nn.Linear(width, out, bias=False)
    linear.weight.data = m.values()
    return linear


def pack_awq(m, scheme, tools):
    gemm = import_from(tools.awq, "awq", "modules.linear.gemm")
    packed = gemm.WQLinear_GEMM.from_linear(
        as_linear(m), m.bits, m.group, scales=m.scales.t().float(), zeros=m.zeros.t().float())
    return {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}


def pack_gptq(m, scheme, tools):
    qlinear = import_from(tools.gptq, "auto_gptq", "nn_modules.qlinear.qlinear_cuda")
    out, width = m.codes.shape
    packed = qlinear.QuantLinear(m.bits, m.group, width, out, bias=False)
    index = torch.arange(width, dtype=torch.int32) // m.group
    # AutoGPTQ takes 1 from the zeros it is given; a file of gptq_v2 has them whole.
    zeros = m.zeros.float() + (1 if scheme.whole_zeros else 0)
    linear = as_linear(m)
    if scheme.whole_zeros:
        linear.weight.data -= m.scales.float().repeat_interleave(m.group, dim=1)
    packed.pack(linear, m.scales.float(), zeros, index)
    return {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": m.scales.t(), "g_idx": index}


def pack_compressed_tensors(m, scheme, tools):
    middle = 2 ** (m.bits - 1)
    args = QuantizationArgs(**weights_of(scheme))
    # The compressor rounds in the type of the scales, which are then written in that of the file.
    state = {"weight": m.values(), "weight_scale": m.scales.float(),
             "weight_zero_point": (m.zeros - middle).to(torch.int8)}
    packed = PackedQuantizationCompressor.compress(state, QuantizationScheme(targets=["Linear"], weights=args))
    packed["weight_scale"] = m.scales
    return packed


@dataclasses.dataclass
class Blocks:
    """value[out, in] = codes (E4M3) * the scale of the block of 128 x 128."""

    codes: torch.Tensor
    scales: torch.Tensor  # [out / 128, in / 128]

    def values(self):
        wide = self.scales.float().repeat_interleave(E4M3_BLOCK, 0).repeat_interleave(E4M3_BLOCK, 1)
        return self.codes.float() * wide[: self.codes.shape[0], : self.codes.shape[1]]


def quantise_blocks(weight, dtype):
    rows, columns = (math.ceil(n / E4M3_BLOCK) for n in weight.shape)
    scales = torch.empty(rows, columns)
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    for r in range(rows):
        for c in range(columns):
            at = (slice(r * E4M3_BLOCK, (r + 1) * E4M3_BLOCK), slice(c * E4M3_BLOCK, (c + 1) * E4M3_BLOCK))
            scales[r, c] = (weight[at].abs().max() / 448).to(dtype)
            codes[at] = (weight[at] / scales[r, c]).to(torch.float8_e4m3fn)
    return Blocks(codes, scales.to(dtype))


def pack_e4m3(m, scheme, tools):
    return {"weight": m.codes, "weight_scale_inv": m.scales}


@dataclasses.dataclass
class Scheme:
    pack: object
    config: dict  # quantization_config
    bits: int = 4
    group: int = 32
    symmetric: bool = False
    whole_zeros: bool = False
    dense: str = "lm_head"  # modules whose names have this part stay as they are


def weights_of(scheme):
    strategy = {"strategy": "group", "group_size": scheme.group} if scheme.group > 0 else {"strategy": "channel"}
    return {"num_bits": scheme.bits, "type": "int", "symmetric": scheme.symmetric, **strategy}


def awq(**options):
    return Scheme(pack_awq, {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32,
                             "zero_point": True, "modules_to_not_convert": None}, **options)


def gptq(bits, group, symmetric, **options):
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": False,
              "checkpoint_format": "gptq_v2" if options.get("whole_zeros") else "gptq"}
    return Scheme(pack_gptq, config, bits, group, symmetric, **options)


def auto_round(packing, pack, symmetric, **options):
    config = {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "group_size": 32,
              "sym": symmetric, "data_type": "int"}
    return Scheme(pack, config, symmetric=symmetric, **options)


def compressed(bits, group, symmetric):
    scheme = Scheme(pack_compressed_tensors, {}, bits, group, symmetric)
    group_0 = {"targets": ["Linear"], "weights": {**weights_of(scheme), "actorder": None},
               "input_activations": None, "output_activations": None}
    scheme.config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                     "quantization_status": "compressed", "config_groups": {"group_0": group_0}}
    return scheme


def e4m3():
    return Scheme(pack_e4m3, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                              "weight_block_size": [E4M3_BLOCK, E4M3_BLOCK]})


def excluding(scheme, modules, dense):
    scheme.config["modules_to_not_convert"] = modules
    scheme.dense = dense
    return scheme


# (architecture, tied, type of the file, scheme)
CASES = {
    "qwen3-awq": ("Qwen3", True, "float16", awq()),
    "qwen2-awq-excluded": ("Qwen2", False, "float16", excluding(awq(), ["layers.1.mlp"], "layers.1.mlp")),
    "qwen2-gptq4": ("Qwen2", True, "float16", gptq(4, 32, False)),
    "qwen3-gptq8-row": ("Qwen3", False, "bfloat16", gptq(8, -1, True)),
    "qwen3-gptq4-v2": ("Qwen3", True, "float16", gptq(4, 32, False, whole_zeros=True)),
    "qwen2-autoround-awq": ("Qwen2", True, "float16", auto_round("auto_round:auto_awq", pack_awq, False)),
    "qwen3-autoround-gptq": ("Qwen3", True, "bfloat16", auto_round("auto_round:auto_gptq", pack_gptq, True)),
    "qwen3-ct-w4": ("Qwen3", False, "bfloat16", compressed(4, 32, True)),
    "qwen2-ct-w4-asym": ("Qwen2", True, "float16", compressed(4, 32, False)),
    "qwen2-ct-w8-row": ("Qwen2", False, "bfloat16", compressed(8, -1, False)),
    "qwen3-fp8": ("Qwen3", True, "bfloat16", e4m3()),
}


def shape_of(arch, tied, scheme):
    # Blocks that are cut at the edges; groups that end at them.
    hidden, intermediate = (160, 160) if scheme.pack is pack_e4m3 else (64, 96)
    return Case(arch, hidden, heads=4, kv_heads=2, intermediate=intermediate, vocab=96, tied=tied,
                head_dim=16 if arch == "Qwen3" else None)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def write_case(name, seed, folder, tools):
    arch, tied, dtype, scheme = CASES[name]
    case = shape_of(arch, tied, scheme)
    generator = torch.Generator().manual_seed(seed)
    config = make_config(case)
    config._attn_implementation = "eager"
    model = getattr(transformers, arch + "ForCausalLM")(config).eval()
    randomise(model, tied, generator)
    ids = torch.randint(2, case.vocab, (case.tokens,), generator=generator)

    tensors, hashes = {}, {}
    for module_name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or module_name == "lm_head" or scheme.dense in module_name:
            continue
        if scheme.pack is pack_e4m3:
            matrix = quantise_blocks(module.weight.data, DTYPES[dtype])
        else:
            matrix = quantise(module.weight.data, scheme, DTYPES[dtype])
        module.weight.data = matrix.values()
        hashes[module_name] = fnv1a(matrix.values().numpy().astype("<f4").tobytes())
        for suffix, tensor in scheme.pack(matrix, scheme, tools).items():
            tensors[f"{module_name}.{suffix}"] = tensor.contiguous()
    for key, parameter in model.named_parameters():
        if key.removesuffix(".weight") in hashes or (tied and key == "lm_head.weight"):
            continue
        stored = parameter.data.to(DTYPES[dtype])
        parameter.data = stored.float()
        tensors[key] = stored.contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = config.to_dict() | {"architectures": [arch + "ForCausalLM"], "torch_dtype": dtype,
                               "quantization_config": scheme.config}
    (folder / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    (folder / "hashes.json").write_text(json.dumps(hashes, indent=1) + "\n")

    with torch.no_grad():
        logits = model(ids[None]).logits[0]
    assert 1 < logits.abs().max() < 30, logits.abs().max()
    np.save(folder / "logits.npy", logits.numpy().astype(np.float32))
    rows = [" ".join(map(str, row.tolist())) for row in ids.split(16)]
    (folder / "ids.txt").write_text("\n".join(rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("awq", type=pathlib.Path, help="the unpacked source of autoawq")
    parser.add_argument("gptq", type=pathlib.Path, help="the unpacked source of auto-gptq")
    parser.add_argument("--check", action="store_true", help="compare with what is there")
    tools = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch) / "quantized"
        for seed, name in enumerate(CASES, start=20260):
            folder = made / name
            folder.mkdir(parents=True)
            write_case(name, seed, folder, tools)
        if tools.check:
            problems = compare(made, GOLDENS)
            print("\n".join(problems) or "quantized: equal")
            return 1 if problems else 0
        shutil.rmtree(GOLDENS, ignore_errors=True)
        shutil.copytree(made, GOLDENS)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {GOLDENS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
