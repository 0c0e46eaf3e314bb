// The text syntax of chat parameters, as in /set: "temp=0.7 stop=\"a b\" overflow=error".
// parameters.h lists the parameters.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/variable.h"
#include "kuiper/engine/request.h"

namespace kuiper {

// Values of "overflow": whether a full context drops the oldest turns or is an error.
NamedValues OverflowNames(bool* drop_oldest);

// Sets the parameters of "temp=0.7 stop=\"a b\"", "temp 0.7" or "parameter temperature 0.7", by the
// names of parameters.h or other_names.h. kInvalidArgument names all mistakes. Valid assignments
// are applied anyway, but none if a quote is missing.
Status ApplySettings(const std::string& assignments, Request* parameters, bool* drop_oldest);
// Returns the settings as lines that ApplySettings accepts.
std::string DescribeSettings(const Request& parameters, bool drop_oldest);

}  // namespace kuiper
