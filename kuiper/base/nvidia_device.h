// Whether a machine has a device of NVIDIA, as far as its files tell; for programs that cannot ask
// the driver.
#pragma once

#include <string>

namespace kuiper {

// Files of the driver, also that of Windows under WSL, or the name of a Jetson board. `root` is the
// folder in which they are looked for.
bool HasNvidiaDevice(const std::string& root = "/");

}  // namespace kuiper
