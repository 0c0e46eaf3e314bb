// The parameters of a chat as people type and read them: "temp=0.7 stop=\"a b\" overflow=error",
// the text of /set. Which parameters there are is parameters.h.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/variable.h"
#include "kuiper/engine/request.h"

namespace kuiper {

// What becomes of the oldest turns when there is no room: whether they leave, or an error.
NamedValues OverflowNames(bool* drop_oldest);

// Sets the parameters of "temp=0.7 stop=\"a b\"", "temp 0.7" or "parameter temperature 0.7", by the
// names of parameters.h or other_names.h. kInvalidArgument names all mistakes; what is right is set
// in spite of them, but nothing if a quote is missing.
Status ApplySettings(const std::string& assignments, Request* parameters, bool* drop_oldest);
// Lines that ApplySettings takes.
std::string DescribeSettings(const Request& parameters, bool drop_oldest);

}  // namespace kuiper
