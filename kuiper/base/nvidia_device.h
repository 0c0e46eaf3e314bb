// Finds out from files whether the machine has an NVIDIA device; for programs that cannot ask the
// driver.
#pragma once

#include <string>

namespace kuiper {

// Looks below the folder `root` for files of the driver (also the Windows driver's under WSL) or
// the name of a Jetson board.
bool HasNvidiaDevice(const std::string& root = "/");

}  // namespace kuiper
