#include "demo/quantize_flags.h"

namespace kuiper::demo {

std::vector<Flag> FlagsOfQuantizing(QuantizeFlags& q) {
  return {
      MakeFlag(
          "format",
          OneOf(&q.scheme.format, {{"compressed-tensors", CheckpointFormat::kCompressedTensors},
                                   {"awq", CheckpointFormat::kAwq}}),
          "how the checkpoint is stored"),
      MakeFlag("bits", OneOf(&q.scheme.bits, {{"4", 4}, {"8", 8}}), "bits per weight; awq: 4 only"),
      MakeFlag("group-size",
               OneOf(&q.scheme.group_size, {{"auto", 0}, {"32", 32}, {"64", 64}, {"128", 128}}),
               "weights that share a scale; auto: the largest that the model's shape allows"),
      MakeFlag("method", OneOf(&q.activation_aware, {{"awq", true}, {"rtn", false}}),
               "awq: keep the outputs on a text; rtn: round to the nearest"),
      MakeFlag("asymmetric", &q.asymmetric, "groups have a zero of their own; awq always"),
      MakeFlag("text", &q.text_file,
               "the text of --method awq, - = standard input (default: a short one of its own)", {},
               "FILE"),
      MakeFlag("limit", &q.limit, "tokens of the text at most", {.min = 32, .max = 1 << 20}),
  };
}

}  // namespace kuiper::demo
