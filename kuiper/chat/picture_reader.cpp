#include "kuiper/chat/picture_reader.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>

#include "kuiper/base/clock.h"
#include "kuiper/base/errors.h"
#include "kuiper/base/sha256.h"
#include "kuiper/base/text.h"
#include "kuiper/io/image/data_url.h"
#include "kuiper/io/image/decode_image.h"

namespace kuiper {
namespace {

using Kind = ContentPart::Kind;

constexpr size_t kDigestBytes = 16;

std::string DigestOf(std::string_view bytes) {
  Sha256 sha;
  sha.Update({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  const Sha256::Digest digest = sha.Finish();
  return HexText(std::span(digest).first(kDigestBytes));
}

// Returns the key of a part that was read. It contains the path, so that equal files at different
// paths keep their own names in messages.
std::string KeyOf(const ContentPart& part) {
  const char* kind = part.kind == Kind::kVideo ? "video " : "image ";
  const std::string path = IsDataUrl(part.text) ? "" : " " + part.text;
  return kind + std::to_string(part.fps.value_or(0)) + " " + part.digest + path;
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// Returns the path of a location that is not a data: URL.
StatusOr<std::string> PathOf(const std::string& location, const std::string& where) {
  constexpr std::string_view kFile = "file://";
  if (location.empty()) return InputError(where + " has neither a path nor a URL");
  if (location.starts_with(kFile)) return location.substr(kFile.size());
  if (location.find("://") == std::string::npos) return location;
  return InputError(where + ": " + Quoted(location.substr(0, 80)) + " is not fetched",
                    "write the path of a file, or a data: URL");
}

// Adds a hint if a conversation's image or video can no longer be read.
Status WithHint(const Status& status, const ContentPart& part) {
  if (part.digest.empty() || !status.hint().empty()) return status;
  return Status(status.code(), status.message(Param),
                "bring the file back, or take the message out of the conversation");
}

}  // namespace

StatusOr<VisionInput> PictureReader::ReadImage(const std::string& path, const std::string& where,
                                               const ContentPart& part, std::string* digest) const {
  const ImageLimits& limits = processor_.options().limits;
  const bool is_url = IsDataUrl(part.text);
  std::error_code error;
  if (!is_url && std::filesystem::is_directory(path, error)) {
    return InputError(path + " is a folder, not an image",
                      "a folder of frames is a video: " + Param("video"));
  }
  KU_ASSIGN_OR_RETURN(const std::string bytes,
                      is_url ? DecodeImageUrl(part.text, limits.max_file_bytes, where)
                             : ReadImageFile(path, limits));
  *digest = DigestOf(bytes);
  return processor_.FromBytes(bytes, is_url ? where : path);
}

Status PictureReader::Read(const std::string& folder, const std::string& where, ContentPart* part) {
  if (part->kind == Kind::kText) return OkStatus();
  const Clock::time_point begin = Clock::now();
  const bool is_video = part->kind == Kind::kVideo;
  std::string path;
  if (!IsDataUrl(part->text)) {
    KU_ASSIGN_OR_RETURN(path, PathOf(part->text, where));
    if (!folder.empty()) path = (std::filesystem::path(folder) / path).string();
  } else if (is_video) {
    return InputError(where + ": a video has no data: URL",
                      "write the path of a folder or an animation");
  }
  if (!path.empty()) part->text = Absolute(path);
  if (part->digest.empty() || !inputs_.contains(KeyOf(*part))) {
    std::string digest;
    StatusOr<VisionInput> input =
        is_video ? processor_.FromVideo(path, part->fps) : ReadImage(path, where, *part, &digest);
    if (!input.ok()) return WithHint(input.status(), *part);
    if (is_video) digest = HexText(input->digest);
    KU_RETURN_IF_ERROR(Keep(digest, std::move(*input), part));
  }
  read_ms_ += MillisecondsSince(begin);
  return OkStatus();
}

Status PictureReader::Measure(const std::string& where, ContentPart* part) {
  const size_t max_bytes = processor_.options().limits.max_file_bytes;
  KU_ASSIGN_OR_RETURN(const std::string bytes, DecodeImageUrl(part->text, max_bytes, where));
  KU_ASSIGN_OR_RETURN(VisionInput input, processor_.Measure(bytes, where));
  return Keep(DigestOf(bytes), std::move(input), part);
}

Status PictureReader::Keep(const std::string& digest, VisionInput input, ContentPart* part) {
  if (!part->digest.empty() && part->digest != digest) {
    return InputError(
        input.source + " is not what it was: its digest is " + digest + ", not " + part->digest,
        "bring the old file back, or take the digest out of the conversation");
  }
  part->digest = digest;
  inputs_.insert_or_assign(KeyOf(*part), std::move(input));
  return OkStatus();
}

Status PictureReader::Read(const std::string& folder, std::vector<Message>* messages) {
  for (size_t i = 0; i < messages->size(); ++i) {
    std::vector<ContentPart>& parts = (*messages)[i].parts;
    for (size_t k = 0; k < parts.size(); ++k) {
      const std::string where = "message " + std::to_string(i) + ", part " + std::to_string(k);
      KU_RETURN_IF_ERROR(Read(folder, where, &parts[k]));
    }
  }
  return OkStatus();
}

StatusOr<const VisionInput*> PictureReader::Of(const ContentPart& part) const {
  const auto found = inputs_.find(KeyOf(part));
  if (found != inputs_.end()) return &found->second;
  return InputError("the picture " + Quoted(part.text) + " was not read");
}

StatusOr<std::vector<const VisionInput*>> PictureReader::Of(
    const std::vector<Message>& messages) const {
  std::vector<const VisionInput*> inputs;
  for (const Message& message : messages) {
    for (const ContentPart& part : message.parts) {
      if (part.kind == Kind::kText) continue;
      KU_ASSIGN_OR_RETURN(const VisionInput* input, Of(part));
      inputs.push_back(input);
    }
  }
  return inputs;
}

int64_t PictureReader::largest_frame() const {
  int64_t largest = 0;
  for (const auto& [key, input] : inputs_) {
    largest = std::max<int64_t>(largest, FrameSizeOf(input).tokens());
  }
  return largest;
}

void PictureReader::KeepOnly(const std::vector<Message>& messages) {
  std::set<std::string> kept;
  for (const Message& message : messages) {
    for (const ContentPart& part : message.parts) kept.insert(KeyOf(part));
  }
  std::erase_if(inputs_, [&](const auto& entry) { return !kept.contains(entry.first); });
}

}  // namespace kuiper
