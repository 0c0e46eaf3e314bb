// What the commands of a chat show, as functions of what they show, and the texts of /set. They
// know neither the chat nor the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/request.h"

namespace kuiper::demo {

std::string ChatHelp();
std::string CacheText(const KvStats& kv);
std::string BlockTableText(const KvStats& kv, const std::vector<int32_t>& table);

// "temp=0.7 top_k=20" into `parameters`; all or nothing.
Status ApplySettings(const std::string& assignments, Request* parameters);
std::string DescribeSettings(const Request& parameters);

}  // namespace kuiper::demo
