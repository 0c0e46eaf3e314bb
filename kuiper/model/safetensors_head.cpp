// Makes the header of a safetensors file to write.
#include <nlohmann/json.hpp>

#include "kuiper/base/text.h"
#include "kuiper/model/safetensors.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;

constexpr int64_t kDataAlignment =
    64;  // alignment of the data section, so that every tensor of a model starts aligned

}  // namespace

StatusOr<std::string> SafetensorsHead(const std::vector<SafetensorsOutput>& tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      const std::string& path) {
  Json header = Json::object();
  header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const SafetensorsOutput& t : tensors) {
    header[t.name] = {
        {"dtype", t.type->name}, {"shape", t.shape}, {"data_offsets", {offset, offset + t.bytes}}};
    offset += t.bytes;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  const int64_t end = 8 + static_cast<int64_t>(text.size());
  text.append(static_cast<size_t>((kDataAlignment - end % kDataAlignment) % kDataAlignment), ' ');
  if (static_cast<int64_t>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return Status(StatusCode::kModel,
                  path + ": names and texts are too large for a safetensors file");
  }
  std::string length;
  for (int i = 0; i < 8; ++i) {
    length += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  }
  return length + text;
}

}  // namespace kuiper
