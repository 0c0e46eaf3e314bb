#include "kuiper/server/page.h"

#include "kuiper/server/page_files.h"

namespace kuiper {

PageFile PageFileOf(std::string_view path) {
  const bool is_style = path.ends_with(".css"), is_script = path.ends_with(".js");
  const std::string type = is_style ? "text/css" : is_script ? "text/javascript" : "text/html";
  // The page loads nothing from other hosts, and no other page may frame it.
  return {{{"Content-Type", type + "; charset=utf-8"},
           {"Content-Security-Policy",
            "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
            "form-action 'none'"},
           {"X-Content-Type-Options", "nosniff"},
           {"Referrer-Policy", "no-referrer"},
           {"Cache-Control", "no-cache"}},
          is_style                         ? kPageStyle
          : path.ends_with("/markdown.js") ? kPageMarkdown
          : path.ends_with("/verify.js")   ? kPageVerify
          : is_script                      ? kPageScript
                                           : kPageHtml};
}

}  // namespace kuiper
