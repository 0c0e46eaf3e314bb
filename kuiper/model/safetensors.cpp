#include "kuiper/model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace kuiper {
namespace {

Status CannotOpen(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    const bool is_hub_name = std::count(path.begin(), path.end(), '/') == 1 && path[0] != '.' &&
                             path.front() != '/' && path.back() != '/';
    return Status(StatusCode::kModel, "model file not found: " + path,
                  is_hub_name ? "tools/get_model.sh " + path +
                                    " brings the model of that name from the Hugging Face hub"
                              : "");
  }
  return Status(StatusCode::kModel, "cannot open " + path + ": " + std::strerror(error));
}

int64_t WrittenNs(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

bool SafetensorsFile::HasChanged() const {
  struct stat info;
  return fstat(fd_, &info) == 0 && (info.st_size != file_bytes_ || WrittenNs(info) != written_ns_);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return CannotOpen(path, errno);
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return Status(StatusCode::kModel, path + " is not a regular file");
  }
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path));
  file->file_bytes_ = info.st_size;
  file->written_ns_ = WrittenNs(info);
  file->fd_ = fd;
  if (info.st_size > 0) {
    void* map = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
      return Status(errno == ENOMEM ? StatusCode::kResourceExhausted : StatusCode::kModel,
                    "cannot map " + path + ": " + std::strerror(errno),
                    errno == ENOMEM ? "there is no address space for it: see ulimit -v" : "");
    }
    file->map_ = static_cast<char*>(map);
  }
  KU_ASSIGN_OR_RETURN(file->header_,
                      ParseSafetensorsHeader({file->map_, static_cast<size_t>(file->file_bytes_)},
                                             file->file_bytes_, path));
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) munmap(map_, static_cast<size_t>(file_bytes_));
  if (fd_ >= 0) close(fd_);
}

void SafetensorsFile::Drop(const void* data, size_t bytes, bool cached_too) const {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t begin = (static_cast<const char*>(data) - map_) / page * page;
  const int64_t end = static_cast<const char*>(data) - map_ + static_cast<int64_t>(bytes);
  // Only hints: a failure costs memory, nothing else. Unmap first, because the page cache keeps
  // mapped pages. The cache also keeps large folios of which only a part is named, so name
  // everything up to `end`.
  (void)madvise(map_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
  if (cached_too) (void)posix_fadvise(fd_, 0, end, POSIX_FADV_DONTNEED);
}

std::string_view SafetensorsFile::Bytes(const SafetensorsEntry& entry) const {
  return {map_ + header_.data_begin + entry.begin, static_cast<size_t>(entry.end - entry.begin)};
}

}  // namespace kuiper
