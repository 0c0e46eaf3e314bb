#include "kuiper/base/nvidia_device.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace kuiper {

bool HasNvidiaDevice(const std::string& root) {
  const std::filesystem::path dir = root;
  constexpr const char* kFiles[] = {"dev/nvidiactl", "dev/nvhost-gpu", "dev/nvgpu",
                                    "proc/driver/nvidia", "usr/lib/wsl/lib/nvidia-smi"};
  const auto exists = [&](const char* file) {
    std::error_code ignored;
    return std::filesystem::exists(dir / file, ignored);
  };
  if (std::any_of(std::begin(kFiles), std::end(kFiles), exists)) return true;
  std::ifstream file(dir / "proc/device-tree/model");
  std::string board;
  std::getline(file, board, '\0');
  return board.starts_with("NVIDIA");
}

}  // namespace kuiper
