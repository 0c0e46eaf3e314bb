// Parses the header of a safetensors file: u64 little-endian length, JSON, data. A strict state
// machine reads the JSON, not a general parser, because the header determines which memory is read.
// A malicious header must not use much memory or be trusted.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/model/safetensors.h"

namespace kuiper {
namespace {

constexpr size_t kMaxRank = 16;
constexpr int64_t kLengthBytes = 8;

constexpr SafetensorsType kTypes[] = {
    {"F32", 32, DType::kF32},     {"F16", 16, DType::kF16},     {"BF16", 16, DType::kBF16},
    {"F64", 64, std::nullopt},    {"I64", 64, DType::kI64},     {"I32", 32, DType::kI32},
    {"I16", 16, std::nullopt},    {"I8", 8, std::nullopt},      {"U64", 64, std::nullopt},
    {"U32", 32, std::nullopt},    {"U16", 16, std::nullopt},    {"U8", 8, DType::kU8},
    {"BOOL", 8, std::nullopt},    {"F8_E4M3", 8, std::nullopt}, {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"C64", 64, std::nullopt},    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt},
};

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"k": "v"}}
class HeaderReader : public JsonEvents {
 public:
  explicit HeaderReader(SafetensorsHeader* header) : header_(header) {}

  bool BeginObject() override {
    switch (state_) {
      case State::kStart:
        return Go(State::kTop);
      case State::kTopValue:
        return Go(name_ == "__metadata__" ? State::kMetadata : State::kTensor);
      default:
        return Refuse("an object where none belongs");
    }
  }
  bool EndObject() override {
    switch (state_) {
      case State::kTop:
        return Go(State::kEnd);
      case State::kTensor:
        return FinishTensor() && Go(State::kTop);
      case State::kMetadata:
        return Go(State::kTop);
      default:
        return Refuse("an incomplete object");
    }
  }
  bool Key(std::string text) override {
    switch (state_) {
      case State::kTop:
        return StartTensor(text) && Go(State::kTopValue);
      case State::kMetadata:
        name_in_metadata_ = std::move(text);
        return Go(State::kMetadataValue);
      case State::kTensor:
        return Field(text);
      default:
        return Refuse("an unexpected key");
    }
  }
  bool Value(JsonNode value) override {
    if (value.IsNumber() && (state_ == State::kShapeItems || state_ == State::kOffsetItems)) {
      return Number(value);
    }
    if (value.IsString() && state_ == State::kMetadataValue) {
      header_->metadata[name_in_metadata_] = std::move(value.text);
      return Go(State::kMetadata);
    }
    if (value.IsString() && state_ == State::kDType) {
      entry_.type = FindSafetensorsType(value.text);
      if (entry_.type == nullptr) return Refuse("unknown dtype " + Quoted(value.text));
      return Go(State::kTensor);
    }
    return Refuse(std::string(value.IsNumber()   ? "a number"
                              : value.IsString() ? "a string"
                              : value.IsBool()   ? "a boolean"
                                                 : "a null") +
                  " where none belongs");
  }
  bool BeginArray() override {
    if (state_ == State::kShape) return Go(State::kShapeItems);
    if (state_ == State::kOffsets) return Go(State::kOffsetItems);
    return Refuse("an array where none belongs");
  }
  bool EndArray() override {
    if (state_ == State::kOffsetItems && num_offsets_ != 2) {
      return Refuse("data_offsets does not have two numbers");
    }
    return Go(State::kTensor);
  }

 private:
  enum class State {
    kStart,
    kTop,
    kTopValue,
    kMetadata,
    kMetadataValue,
    kTensor,
    kDType,
    kShape,
    kShapeItems,
    kOffsets,
    kOffsetItems,
    kEnd,
  };

  bool Go(State state) {
    state_ = state;
    return true;
  }
  bool Refuse(const std::string& what) {
    return Fail((name_.empty() ? "" : "tensor " + Quoted(name_) + ": ") + what);
  }
  bool Number(const JsonNode& number) {
    if (number.type != JsonNode::Type::kInt) return Refuse("a number that is not an integer");
    if (number.text[0] == '-') return Refuse("a negative number");
    const std::optional<int64_t> value = number.AsInt();
    if (!value.has_value()) return Refuse("a number larger than 2^63");
    if (state_ == State::kShapeItems) {
      if (entry_.shape.size() == kMaxRank) return Refuse("a shape with too many dimensions");
      entry_.shape.push_back(*value);
      return true;
    }
    if (num_offsets_ == 2) return Refuse("data_offsets does not have two numbers");
    (num_offsets_++ == 0 ? entry_.begin : entry_.end) = *value;
    return true;
  }
  bool StartTensor(const std::string& name) {
    name_ = name;
    entry_ = {};
    has_dtype_ = has_shape_ = has_offsets_ = false;
    num_offsets_ = 0;
    if (name == "__metadata__") {
      if (has_metadata_) return Refuse("listed twice");
      has_metadata_ = true;
    } else if (header_->tensors.contains(name)) {
      return Refuse("listed twice");
    }
    return true;
  }
  bool Field(const std::string& field) {
    bool* seen = field == "dtype"          ? &has_dtype_
                 : field == "shape"        ? &has_shape_
                 : field == "data_offsets" ? &has_offsets_
                                           : nullptr;
    if (seen == nullptr) return Refuse("unknown field " + Quoted(field));
    if (*seen) return Refuse("field " + Quoted(field) + " twice");
    *seen = true;
    return Go(field == "dtype"   ? State::kDType
              : field == "shape" ? State::kShape
                                 : State::kOffsets);
  }
  bool FinishTensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_) {
      return Refuse("dtype, shape or data_offsets is missing");
    }
    int64_t bits = entry_.type->bits;
    for (int64_t extent : entry_.shape) {
      if (__builtin_mul_overflow(bits, extent, &bits)) return Refuse("a shape that is too large");
    }
    if (bits % 8 != 0) return Refuse("a size that is not a whole number of bytes");
    if (entry_.begin > entry_.end || entry_.end - entry_.begin != bits / 8) {
      return Refuse("data_offsets do not match its shape and dtype");
    }
    header_->tensors.emplace(name_, std::move(entry_));
    return true;
  }

  SafetensorsHeader* header_;
  State state_ = State::kStart;
  std::string name_, name_in_metadata_;
  SafetensorsEntry entry_;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int num_offsets_ = 0;
};

// File types that users mistake for such a model, recognised by their first bytes.
struct ForeignFile {
  std::string_view head;
  const char* what;
  const char* hint;
};
constexpr char kWantsSafetensors[] =
    "use the safetensors version of the model (the folder as it is on the hub)";
constexpr char kOldExport[] = "pack the model again: kuiper_pack DIR OUT.bin";
constexpr ForeignFile kForeignFiles[] = {
    {"GGUF", "a GGUF file", kWantsSafetensors},
    {"PK\x03\x04", "a PyTorch checkpoint or another zip archive", kWantsSafetensors},
    {"\x80\x02", "a pickle file", kWantsSafetensors},
    {"ak42", "an old OrinMLLM export", kOldExport},
    {"ak47", "an old OrinMLLM export", kOldExport},
    {"ak48", "an old OrinMLLM export", kOldExport},
    {"qw3v", "an old OrinMLLM export", kOldExport},
};

Status NotAModel(std::string_view head, const std::string& path) {
  constexpr const char* kHint =
      "supported: Hugging Face directory, .safetensors, .bin made by kuiper_pack";
  if (head.empty()) return Status(StatusCode::kModel, path + " is empty", kHint);
  if (IsLfsPointer(head)) return LfsPointer(path, StatusCode::kModel);
  for (const ForeignFile& file : kForeignFiles) {
    if (!head.starts_with(file.head)) continue;
    return Status(StatusCode::kModel,
                  path + " is " + file.what + ", not a model file this program knows", file.hint);
  }
  std::string bytes;
  for (unsigned char c : head.substr(0, 4)) {
    char hex[4];
    std::snprintf(hex, sizeof hex, " %02x", c);
    bytes += hex;
  }
  return Status(StatusCode::kModel,
                path + ": not a model file this program knows (first bytes" + bytes + ")", kHint);
}

std::string SizeText(int64_t bytes) {
  const char* const units[] = {"bytes", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

Status Truncated(const std::string& path, int64_t needed, int64_t file_bytes,
                 const std::string& first_tensor) {
  std::string message = path + " is truncated: header needs " + std::to_string(needed) +
                        " bytes, file has " + std::to_string(file_bytes) + " (" +
                        SizeText(needed - file_bytes) + " missing)";
  if (!first_tensor.empty()) message += "; first tensor past the end: " + first_tensor;
  return Status(StatusCode::kModel, message, "re-copy or re-export the file");
}

// The format forbids gaps and overlaps: sorted by offset, the tensors tile the data section.
Status CheckLayout(const SafetensorsHeader& header, int64_t file_bytes, const std::string& path) {
  std::vector<std::pair<const SafetensorsEntry*, const std::string*>> order;
  order.reserve(header.tensors.size());
  for (const auto& [name, entry] : header.tensors) order.emplace_back(&entry, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  const int64_t data_bytes = file_bytes - header.data_begin;
  int64_t expected = 0;
  const std::string* first_past_end = nullptr;
  for (const auto& [entry, name] : order) {
    if (entry->begin != expected) {
      return Status(StatusCode::kModel,
                    path + ": tensor " + Quoted(*name) +
                        (entry->begin < expected ? " overlaps another tensor"
                                                 : " leaves a gap in the data before it"));
    }
    expected = entry->end;
    if (expected > data_bytes && first_past_end == nullptr) first_past_end = name;
  }
  if (first_past_end != nullptr) {
    int64_t needed = 0;
    if (__builtin_add_overflow(header.data_begin, expected, &needed)) {
      return Status(StatusCode::kModel, path + ": data_offsets are too large");
    }
    return Truncated(path, needed, file_bytes, Quoted(*first_past_end));
  }
  if (expected != data_bytes) {
    return Status(StatusCode::kModel,
                  path + ": " + std::to_string(data_bytes - expected) +
                      " bytes after the last tensor belong to none",
                  "re-copy or re-export the file");
  }
  return OkStatus();
}

}  // namespace

const SafetensorsType* FindSafetensorsType(std::string_view name) {
  for (const SafetensorsType& type : kTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

const char* SafetensorsTypeName(DType dtype) {
  for (const SafetensorsType& type : kTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return "";
}

StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view head, int64_t file_bytes,
                                                   const std::string& path) {
  if (head.size() < kLengthBytes + 1 || head[kLengthBytes] != '{') return NotAModel(head, path);
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(head[i]);
  if (length > kMaxSafetensorsHeaderBytes) return NotAModel(head, path);
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + static_cast<int64_t>(length);
  if (header.data_begin > file_bytes || head.size() < static_cast<size_t>(header.data_begin)) {
    return Truncated(path, header.data_begin, file_bytes, "");
  }
  HeaderReader reader(&header);
  KU_RETURN_IF_ERROR(
      reader.Read(head.substr(kLengthBytes, length), StatusCode::kModel, path + ": bad header"));
  KU_RETURN_IF_ERROR(CheckLayout(header, file_bytes, path));
  return header;
}

}  // namespace kuiper
