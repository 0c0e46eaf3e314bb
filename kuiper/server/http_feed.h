// Feeds bytes to the network library's parsers. Includes that library, so only http_parser.cpp and
// http_reply.cpp may include this header.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <string>

namespace kuiper {

// Removes the bytes that `parser` consumes from the front of `bytes` and returns their number.
// Needing more bytes is not an error. If `stops`, a parser that is not eager stops after the
// header.
template <typename Parser>
size_t Feed(Parser& parser, std::string* bytes, boost::system::error_code* error,
            bool stops = false) {
  size_t used = 0;
  while (!*error && used < bytes->size() && !parser.is_done() &&
         !(stops && parser.is_header_done())) {
    const size_t more =
        parser.put(boost::asio::buffer(bytes->data() + used, bytes->size() - used), *error);
    used += more;
    if (more == 0) break;
  }
  bytes->erase(0, used);
  if (*error == boost::beast::http::error::need_more) *error = {};
  return used;
}

}  // namespace kuiper
