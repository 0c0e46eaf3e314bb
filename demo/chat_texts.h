// What the commands of a chat show, as functions of what they show, and the texts of /set. They
// know neither the chat nor the terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/request.h"
#include "kuiper/kv/page_map.h"

namespace kuiper::demo {

struct ChatTotals {
  int turns = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
};

// The path that is meant by one typed in a chat: without the quotes that a terminal puts around
// what is dropped on it, and "~/" is the home folder, as in a shell.
std::string TypedPath(const std::string& path);

std::string ChatHelp();
std::string SystemText(const Conversation& conversation);
std::string ThinkingText(const TemplateOptions& chat);
std::string TotalsText(const ChatTotals& totals);
std::string CacheText(const KvStats& kv);

// Where the keys and values of the newest answer and of its prompt lay when it ended.
struct BlockTable {
  int turn = 0;    // 0: there is no answer
  int tokens = 0;  // that have keys and values
  std::vector<int32_t> pages;
};
// `map`: of the pool, as it is now; absent: contiguous.
std::string BlockTableText(const KvStats& kv, const BlockTable& table,
                           const std::optional<PageMap>& map);

// The command that is meant: "/quit" for "/q" and "exit"; "" when there is none of this name.
std::string CommandOf(const std::string& name);
// kInvalidArgument: there is no such command, with the nearest one.
Status UnknownCommand(const std::string& name);

// "temp=0.7 stop=\"a b\" overflow=error" into where it belongs; all or nothing.
Status ApplySettings(const std::string& assignments, Request* parameters, bool* drop_oldest);
// ApplySettings takes it.
std::string DescribeSettings(const Request& parameters, bool drop_oldest);

}  // namespace kuiper::demo
