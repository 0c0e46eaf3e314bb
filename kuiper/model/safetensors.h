// A memory-mapped .safetensors file. Open checks the whole header against the file before
// allocating memory by its numbers, so every tensor view lies inside the mapping. Other programs
// must not truncate the mapped file: reading the removed part raises SIGBUS.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"

namespace kuiper {

// The limit of the format itself.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Element types of the format. `dtype` is absent if this program cannot compute with the type.
struct SafetensorsType {
  const char* name;
  int bits;
  std::optional<DType> dtype;
};
// Returns nullptr if the format has no such type.
const SafetensorsType* FindSafetensorsType(std::string_view name);
const char* SafetensorsTypeName(DType dtype);

struct SafetensorsEntry {
  const SafetensorsType* type = nullptr;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, relative to the data section
};

// Returns "[2, 3]", for messages.
std::string ShapeText(const std::vector<int64_t>& shape);

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // file offset of the data section
};

// Checks `head`, the first bytes of a file of `file_bytes` bytes (as much of the header as the file
// has). `path` is used in messages only. A pure function, so that it can be fuzzed.
StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view head, int64_t file_bytes,
                                                   const std::string& path);

// A tensor to write to a file.
struct SafetensorsOutput {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};
// Returns the beginning of a file with these tensors: the length of the header and the header,
// padded so that the data section is aligned. The tensors follow in this order. List wide types
// first: then all tensors are aligned. Returns kModel if the header exceeds the format's limit;
// `path` is for that message.
StatusOr<std::string> SafetensorsHead(const std::vector<SafetensorsOutput>& tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      const std::string& path);

class SafetensorsFile {
 public:
  static StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t file_bytes() const { return file_bytes_; }
  const SafetensorsHeader& header() const { return header_; }
  std::string_view Bytes(const SafetensorsEntry& entry) const;
  bool Contains(const void* data) const { return data >= map_ && data < map_ + file_bytes_; }
  // True if the file was written to or truncated since Open.
  bool HasChanged() const;
  // Removes these bytes of the mapping from the process, and from the page cache if `cached_too`. A
  // later access reads them from the file again.
  void Drop(const void* data, size_t bytes, bool cached_too) const;

 private:
  explicit SafetensorsFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  SafetensorsHeader header_;
  int fd_ = -1;
  char* map_ = nullptr;
  int64_t file_bytes_ = 0;
  int64_t written_ns_ = 0;  // time of the last write
};

}  // namespace kuiper
