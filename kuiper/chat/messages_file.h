// Reads the messages of a prompt from a file.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/messages_json.h"

namespace kuiper {

// `path`: "-" = input_fd. Images and videos without a path, such as {"type": "image"}, take those
// of `media` in order. kInput.
StatusOr<ParsedMessages> ReadMessagesFile(const std::string& path,
                                          const std::vector<ContentPart>& media, int input_fd);

}  // namespace kuiper
