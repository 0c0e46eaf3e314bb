#include "kuiper/quant/shards.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <system_error>
#include <utility>

namespace kuiper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A tensor in an existing file.
struct Stored {
  std::string path;
  SafetensorsOutput head;
  int64_t begin = 0;  // offset in the file
};

// Appends the tensors of an existing file.
Status List(const std::string& path, std::vector<Stored>* tensors) {
  std::error_code error;
  if (!fs::exists(path, error)) return OkStatus();
  KU_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  for (const auto& [name, entry] : file->header().tensors) {
    tensors->push_back({path,
                        {name, entry.type, entry.shape, entry.end - entry.begin},
                        file->header().data_begin + entry.begin});
  }
  return OkStatus();
}

// Returns how many of the tensors go into the next shard.
size_t CountNext(std::span<const Stored> tensors, int64_t max_bytes) {
  size_t count = 0;
  int64_t bytes = 0;
  while (count < tensors.size()) {
    bytes += tensors[count].head.bytes;
    if (count > 0 && bytes > max_bytes) break;
    ++count;
  }
  return count;
}

std::string ShardName(int shard, int num_shards) {
  if (num_shards == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, num_shards);
  return name;
}

Status WriteIndex(const std::string& directory, const std::vector<Stored>& tensors, int64_t bytes) {
  Json map = Json::object();
  for (const Stored& tensor : tensors) {
    map[tensor.head.name] = fs::path(tensor.path).filename().string();
  }
  const Json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
  const std::string text = index.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  AtomicFile out(directory + "/model.safetensors.index.json");
  KU_RETURN_IF_ERROR(out.Write(text.data(), text.size()));
  return out.Commit();
}

}  // namespace

Status AppendBytes(const std::string& from, int64_t begin, int64_t count, AtomicFile& out) {
  const auto failed = [&] {
    return Status(StatusCode::kModel, "cannot read " + from + ": " + std::strerror(errno));
  };
  std::ifstream in(from, std::ios::binary);
  if (!in || !in.seekg(begin)) return failed();
  std::vector<char> piece(size_t{1} << 20);
  while (count != 0 && in) {
    const auto most = static_cast<int64_t>(piece.size());
    in.read(piece.data(), count < 0 ? most : std::min(most, count));
    KU_RETURN_IF_ERROR(out.Write(piece.data(), static_cast<size_t>(in.gcount())));
    count -= count < 0 ? 0 : in.gcount();
  }
  return count > 0 || in.bad() ? failed() : OkStatus();
}

Status WriteSafetensors(const std::string& path, std::vector<PartTensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const PartTensor& a, const PartTensor& b) {
    return a.head.type->bits > b.head.type->bits;
  });
  std::vector<SafetensorsOutput> outputs;
  outputs.reserve(tensors.size());
  for (const PartTensor& tensor : tensors) outputs.push_back(tensor.head);
  KU_ASSIGN_OR_RETURN(const std::string head, SafetensorsHead(outputs, {{"format", "pt"}}, path));
  AtomicFile out(path);
  KU_RETURN_IF_ERROR(out.Write(head.data(), head.size()));
  for (const PartTensor& tensor : tensors) KU_RETURN_IF_ERROR(tensor.write(out));
  return out.Commit();
}

StatusOr<ShardPlan> PlanShards(const std::vector<std::string>& parts, int64_t max_bytes) {
  std::vector<Stored> tensors;
  for (const std::string& part : parts) KU_RETURN_IF_ERROR(List(part, &tensors));
  ShardPlan plan{.num_tensors = tensors.size()};
  for (std::span<const Stored> rest = tensors; !rest.empty(); ++plan.num_shards) {
    rest = rest.subspan(CountNext(rest, max_bytes));
  }
  return plan;
}

Status MoveIntoShards(const std::string& directory, const std::vector<std::string>& parts,
                      const ShardPlan& plan, int64_t max_bytes, int64_t* bytes) {
  std::vector<Stored> moved, all, rest;
  int shard = 0;
  const auto path = [&] { return directory + "/" + ShardName(shard, plan.num_shards); };
  for (std::error_code error; fs::exists(path(), error); ++shard) {
    KU_RETURN_IF_ERROR(List(path(), &moved));
  }
  std::set<std::string> names;
  for (const Stored& tensor : moved) names.insert(tensor.head.name);
  for (const std::string& part : parts) KU_RETURN_IF_ERROR(List(part, &all));
  std::copy_if(all.begin(), all.end(), std::back_inserter(rest),
               [&](const Stored& tensor) { return !names.contains(tensor.head.name); });
  if (moved.size() + rest.size() != plan.num_tensors) {
    return Status(StatusCode::kInternal, "files of " + directory + " are missing",
                  "remove it and begin again");
  }
  std::error_code ignored;
  for (size_t begin = 0; begin < rest.size(); ++shard) {
    const size_t end = begin + CountNext(std::span(rest).subspan(begin), max_bytes);
    std::vector<PartTensor> tensors;
    for (size_t i = begin; i < end; ++i) {
      tensors.push_back({rest[i].head, [from = rest[i]](AtomicFile& out) {
                           return AppendBytes(from.path, from.begin, from.head.bytes, out);
                         }});
    }
    KU_RETURN_IF_ERROR(WriteSafetensors(path(), std::move(tensors)));
    for (; begin < end; ++begin) {
      const bool is_last = begin + 1 == rest.size() || rest[begin + 1].path != rest[begin].path;
      if (is_last) fs::remove(rest[begin].path, ignored);
      rest[begin].path = path();
      moved.push_back(rest[begin]);
    }
  }
  for (const std::string& part : parts) fs::remove(part, ignored);
  *bytes = 0;
  for (const Stored& tensor : moved) *bytes += tensor.head.bytes;
  return plan.num_shards == 1 ? OkStatus() : WriteIndex(directory, moved, *bytes);
}

}  // namespace kuiper
