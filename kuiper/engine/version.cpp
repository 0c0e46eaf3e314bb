// KUIPER_VERSION and KUIPER_COMMIT come from CMakeLists.txt of this folder.
#include "kuiper/engine/engine.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

std::string Engine::Version() {
  const std::string commit = KUIPER_COMMIT;
  return std::string("kuiper ") + KUIPER_VERSION +
         (commit.empty() ? "" : " (commit " + commit + ")") + ", devices: " + CompiledDevices();
}

}  // namespace kuiper
