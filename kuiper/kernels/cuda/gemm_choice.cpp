#include "kuiper/kernels/cuda/gemm_choice.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "kuiper/base/atomic_file.h"
#include "kuiper/base/log.h"

namespace kuiper {
namespace {

constexpr std::string_view kHeading = "kuiper matrix products 1";
constexpr std::streamsize kMaxFileBytes = 1 << 20;

// Excludes other processes from changing the file until it is destroyed.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : fd_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    if (fd_ >= 0 && flock(fd_, LOCK_EX) != 0) {
      close(fd_);
      fd_ = -1;
    }
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Parses lines "INDEX<tab>KEY" after the heading. Returns nothing if any line has another format.
std::optional<std::map<std::string, int>> Parse(std::string_view text) {
  std::map<std::string, int> choices;
  bool first = true;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;  // the last line is incomplete
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (std::exchange(first, false)) {
      if (line != kHeading) return std::nullopt;
      continue;
    }
    int choice = -1;
    const char* const line_end = line.data() + line.size();
    const auto [rest, error] = std::from_chars(line.data(), line_end, choice);
    if (error != std::errc() || choice < 0 || rest == line_end || *rest != '\t') {
      return std::nullopt;
    }
    choices.emplace(std::string(rest + 1, line_end), choice);
  }
  if (first) return std::nullopt;
  return choices;
}

std::optional<int> FirstUsable(const GemmCandidates& candidates) {
  for (int i = 0; i < candidates.count; ++i) {
    if (candidates.usable(i)) return i;
  }
  return std::nullopt;
}

// Returns the fastest usable algorithm; the first of equally fast ones.
std::optional<int> Fastest(const GemmCandidates& candidates) {
  std::vector<int> usable;
  for (int i = 0; i < candidates.count; ++i) {
    if (candidates.usable(i)) usable.push_back(i);
  }
  if (usable.size() == 1) return usable[0];
  std::optional<int> fastest;
  double best = 0;
  for (const int i : usable) {
    const double seconds = candidates.seconds(i);
    if (fastest.has_value() && !(seconds < best)) continue;
    fastest = i;
    best = seconds;
  }
  return fastest;
}

}  // namespace

std::string GemmChoices::DefaultPath() {
  const auto folder = [](const char* variable, const char* below) -> std::string {
    const char* const value = std::getenv(variable);
    return value == nullptr || *value == '\0' ? "" : std::string(value) + below;
  };
  for (const std::string& path :
       {folder("KUIPER_CACHE_DIR", ""), folder("XDG_CACHE_HOME", "/kuiper"),
        folder("HOME", "/.cache/kuiper")}) {
    if (!path.empty()) return path + "/matrix_products.txt";
  }
  return "";
}

GemmChoices::GemmChoices(std::string path) : path_(std::move(path)) {
  if (!Read())
    LogWarning(path_ + " is damaged and ignored; tuning with kuiper_bench writes it anew");
}

bool GemmChoices::Read() {
  std::ifstream file(path_, std::ios::binary);
  if (!file) return true;  // no file exists yet
  std::string text(static_cast<size_t>(kMaxFileBytes) + 1, '\0');
  file.read(text.data(), kMaxFileBytes + 1);
  text.resize(static_cast<size_t>(file.gcount()));
  auto choices = file.gcount() <= kMaxFileBytes ? Parse(text) : std::nullopt;
  choices_.clear();
  if (!choices.has_value()) return false;
  choices_ = *std::move(choices);
  return true;
}

bool GemmChoices::Write() const {
  std::string text = std::string(kHeading) + '\n';
  for (const auto& [key, choice] : choices_) text += std::to_string(choice) + '\t' + key + '\n';
  AtomicFile file(path_);
  (void)file.Write(text.data(), text.size());  // Commit reports the error
  return file.Commit().ok();
}

std::optional<int> GemmChoices::Find(const std::string& key) const {
  const auto known = choices_.find(key);
  if (known == choices_.end()) return std::nullopt;
  return known->second;
}

std::optional<int> GemmChoices::KeepLocked(const std::string& key, int choice) {
  if (path_.empty()) return std::nullopt;
  std::error_code ignored;  // without a folder the lock fails
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const FileLock lock(path_ + ".lock");
  if (!lock.held()) return std::nullopt;
  (void)Read();  // a damaged file is written anew
  const auto [entry, added] = choices_.emplace(key, choice);
  if (!added || Write()) return entry->second;
  choices_.erase(entry);
  return std::nullopt;
}

std::optional<int> GemmChoices::Keep(const std::string& key, int choice) {
  const std::optional<int> kept = writable_ ? KeepLocked(key, choice) : std::nullopt;
  if (!kept.has_value() && std::exchange(writable_, false)) {
    LogWarning("choices of matrix products cannot be kept: " +
               (path_.empty() ? "set KUIPER_CACHE_DIR" : "cannot write " + path_));
  }
  return kept;
}

std::optional<int> ChooseGemm(const GemmCandidates& candidates, GemmTiming timing,
                              GemmChoices& choices) {
  const auto usable = [&](const std::optional<int>& choice) {
    return choice.has_value() && *choice < candidates.count && candidates.usable(*choice);
  };
  const std::optional<int> known = choices.Find(candidates.key);
  if (usable(known)) return known;
  if (timing == GemmTiming::kNever) return FirstUsable(candidates);
  const std::optional<int> fastest = Fastest(candidates);
  if (timing == GemmTiming::kForThisRun || !fastest.has_value()) return fastest;
  const std::optional<int> kept = choices.Keep(candidates.key, *fastest);
  // If the choice cannot be stored, only the library's order makes the next run choose the same.
  return usable(kept) ? kept : FirstUsable(candidates);
}

}  // namespace kuiper
