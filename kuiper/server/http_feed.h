// The one way to give bytes to the network library's parsers. Includes it, so only http_parser.cpp
// and http_reply.cpp include this.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <string>

namespace kuiper {

// Takes what `parser` consumes off the front of `bytes`, and says how much that was. That more is
// needed is no error. A parser that is not eager stops after the header if `stops` says so.
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
