// The messages of a prompt in a file.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/messages_json.h"

namespace kuiper {

// `path`: "-" = input_fd. Images and videos without a path of their own, as {"type": "image"} is
// one, are those of `media`, in their order. kInput.
StatusOr<ParsedMessages> ReadMessagesFile(const std::string& path,
                                          const std::vector<ContentPart>& media, int input_fd);

}  // namespace kuiper
