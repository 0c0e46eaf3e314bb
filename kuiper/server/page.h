// The files of the chat page for browsers: /, /kuiper/page.css and /kuiper/page.js.
#pragma once

#include <string_view>

#include "kuiper/server/http_server.h"

namespace kuiper {

struct PageFile {
  HttpHeaders headers;
  std::string_view text;
};

PageFile PageFileOf(std::string_view path);

}  // namespace kuiper
