// Fuzzes the readers of quantised matrices. Input: rows and columns of a matrix (two bytes each), a
// quantization_config, a line break, and a .safetensors file. An accepted matrix is unpacked, piece
// by piece, into memory of the size that its reader asks for.
#include "kuiper/model/quantized/packed_matrix.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/base/json.h"
#include "kuiper/model/manifest.h"

namespace {

void Unpack(const kuiper::PackedTensor& tensor) {
  const std::string_view bytes = tensor.stored.bytes;
  if (tensor.verify != nullptr) (void)tensor.verify(tensor, {0, bytes}).ok();
  if (tensor.becomes.rank == 0) return;
  if (tensor.unpack == nullptr) {
    KU_CHECK(static_cast<int64_t>(bytes.size()) == tensor.becomes.bytes(), tensor.stored.name);
    return;
  }
  KU_CHECK(tensor.unit_bytes > 0, tensor.stored.name);
  std::vector<char> out(static_cast<size_t>(tensor.becomes.bytes()));
  const size_t unit = static_cast<size_t>(tensor.unit_bytes);
  KU_CHECK(bytes.size() % unit == 0, tensor.stored.name);
  for (size_t at = 0; at < bytes.size(); at += unit) {
    tensor.unpack(tensor, {static_cast<int64_t>(at / unit), bytes.substr(at, unit)}, out.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (size < 4 || line == std::string_view::npos || line < 4) return 0;
  uint16_t sizes[2];
  std::memcpy(sizes, data, sizeof sizes);
  const auto json =
      kuiper::ParseJson(input.substr(4, line - 4), kuiper::StatusCode::kModel, "fuzz");
  if (!json.ok()) return 0;
  const auto config = kuiper::ParseQuantization(*json);
  const std::string_view file = input.substr(line + 1);
  const auto header =
      kuiper::ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "fuzz.safetensors");
  if (!config.ok() || !header.ok()) return 0;
  const auto find = [&](const std::string& name) -> std::optional<kuiper::StoredTensor> {
    const auto it = header->tensors.find(name);
    if (it == header->tensors.end()) return std::nullopt;
    const auto& entry = it->second;
    return kuiper::StoredTensor{
        .file = "fuzz.safetensors",
        .name = name,
        .type = entry.type,
        .shape = entry.shape,
        .bytes = file.substr(static_cast<size_t>(header->data_begin + entry.begin),
                             static_cast<size_t>(entry.end - entry.begin))};
  };
  const kuiper::Weight weight{
      .name = "m.weight",
      .shape = {std::max<int64_t>(1, sizes[0]), std::max<int64_t>(1, sizes[1])}};
  const auto packed = kuiper::FindPacked(*config, weight, find);
  if (!packed.ok() || !packed->has_value()) return 0;
  for (const kuiper::PackedTensor* tensor :
       {&(*packed)->values, &(*packed)->scales, &(*packed)->zeros}) {
    Unpack(*tensor);
  }
  return 0;
}
