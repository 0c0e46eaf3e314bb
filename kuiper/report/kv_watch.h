// Who watches a paged KV cache in a run: a file of its events, a file of the block tables of
// answers, lines for people, and a map of its pages. What happens to pages is the engine's business
// (kuiper/kv/kv_event.h).
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
  std::function<void(const std::string& line)> on_line;  // empty: nobody reads lines
  bool wants_map = false;
};

class KvWatch {
 public:
  // Opens the files; status() says which one cannot be written.
  explicit KvWatch(KvWatchSettings settings);

  // Empty where nobody watches.
  KvObserver observer();
  // Before the first request.
  void Begin(const KvStats& kv);
  // Writes the line that may still grow.
  void Flush() { lines_.Flush(); }
  // Where the keys and values of an answer lay at its end; nothing for one without tokens. `name`:
  // of the request in its file.
  void WriteTable(int64_t request, int sample, const Completion& completion,
                  const std::optional<std::string>& name = {});
  // At the end of the run, when the engine is gone.
  Status Close();
  Status status() const { return trace_.status().ok() ? tables_.status() : trace_.status(); }
  const std::optional<PageMap>& map() const { return map_; }  // of a paged cache, if it is wanted

 private:
  void Watch(const KvEvent& event);

  OutputFile trace_, tables_;
  bool is_verbose_, wants_map_;
  KvEventLines lines_;
  std::optional<PageMap> map_;
  int page_size_ = 0;
};

}  // namespace kuiper
