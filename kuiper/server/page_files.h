// The contents of the files in kuiper/server/page, which CMake embeds; for page.cpp.
#pragma once

namespace kuiper {

extern const char kPageHtml[];
extern const char kPageStyle[];
extern const char kPageMarkdown[];
extern const char kPageVerify[];
extern const char kPageScript[];

}  // namespace kuiper
