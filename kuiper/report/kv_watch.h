// Outputs that follow a paged KV cache during a run: files of its events and of the block tables of
// answers, lines for users, and a map of its pages. kuiper/kv/kv_event.h defines the events.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kuiper/base/output_file.h"
#include "kuiper/engine/engine.h"
#include "kuiper/kv/page_map.h"

namespace kuiper {

struct KvWatchSettings {
  std::string trace_file, tables_file;                   // "": none
  std::function<void(const std::string& line)> on_line;  // empty: no lines are written
  bool wants_map = false;
};

class KvWatch {
 public:
  // Opens the files; status() reports one that cannot be written.
  explicit KvWatch(KvWatchSettings settings);

  // Returns an empty observer if there is no output.
  KvObserver observer();
  // Call before the first request.
  void Begin(const KvStats& kv);
  // Writes the pending line, which might otherwise grow.
  void Flush() { lines_.Flush(); }
  // Writes where the keys and values of an answer were at its end; nothing for an answer without
  // tokens. `name`: name of the request in its file.
  void WriteTable(int64_t request, int sample, const Completion& completion,
                  const std::optional<std::string>& name = {});
  // Call at the end of the run, after the engine is destroyed.
  Status Close();
  Status status() const { return trace_.status().ok() ? tables_.status() : trace_.status(); }
  const std::optional<PageMap>& map() const { return map_; }  // map of a paged cache, if requested

 private:
  void Watch(const KvEvent& event);

  OutputFile trace_, tables_;
  bool is_verbose_, wants_map_;
  KvEventLines lines_;
  std::optional<PageMap> map_;
  int page_size_ = 0;
};

}  // namespace kuiper
