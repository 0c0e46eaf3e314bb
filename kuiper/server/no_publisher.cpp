// Replaces zmq_publisher.cpp in builds without libzmq.
#include "kuiper/server/kv_publisher.h"

namespace kuiper {

StatusOr<std::unique_ptr<KvPublisher>> StartKvPublisher(const KvPublisherSettings&) {
  return Status(StatusCode::kInvalidArgument,
                Param("kv_events_endpoint") + " needs libzmq, which this program was built without",
                "apt-get install libzmq3-dev, and build again with -DKUIPER_ZMQ=ON");
}

}  // namespace kuiper
