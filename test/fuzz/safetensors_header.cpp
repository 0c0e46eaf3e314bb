// Fuzzes the header of a .safetensors file: an accepted header must describe tensors that lie
// inside the file and have the number of bytes that their shape requires.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // A file that ends after the header, and one with data after it.
  for (int64_t file_bytes : {static_cast<int64_t>(size), static_cast<int64_t>(size) + 1'000'000}) {
    const auto header = kuiper::ParseSafetensorsHeader(bytes, file_bytes, "fuzz.safetensors");
    if (!header.ok()) continue;
    for (const auto& [name, entry] : header->tensors) {
      KU_CHECK(entry.type != nullptr, name);
      KU_CHECK(0 <= entry.begin && entry.begin <= entry.end, name);
      KU_CHECK(entry.end <= file_bytes - header->data_begin, name);
      __int128 bits = entry.type->bits;
      for (int64_t n : entry.shape) {
        KU_CHECK(n >= 0, name);
        bits *= n;
      }
      KU_CHECK(bits == __int128{8} * (entry.end - entry.begin), name);
    }
  }
  return 0;
}
