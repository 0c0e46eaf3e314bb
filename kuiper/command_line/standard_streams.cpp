#include "kuiper/command_line/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace kuiper {

void OccupyStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // open() takes the lowest free number, which is fd: all lower ones are open by now.
    (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace kuiper
