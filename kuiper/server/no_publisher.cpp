// In place of zmq_publisher.cpp where libzmq is not installed.
#include "kuiper/server/kv_publisher.h"

namespace kuiper {

StatusOr<std::unique_ptr<KvPublisher>> StartKvPublisher(const KvPublisherSettings&) {
  return Status(StatusCode::kUnavailable,
                Param("kv_events_endpoint") + " needs libzmq, without which this was built",
                "apt-get install libzmq3-dev, and build again");
}

}  // namespace kuiper
