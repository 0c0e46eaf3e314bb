// A build without libzmq.
#include <gtest/gtest.h>

#include <string>

#include "kuiper/server/kv_publisher.h"

namespace kuiper {
namespace {

std::string Spelled(std::string_view name) {
  std::string spelled = "<";
  return spelled.append(name).append(">");
}

TEST(KvPublisher, WithoutLibzmqItSaysWhatIsMissing) {
  KvPublisherSettings settings;
  settings.endpoint = "tcp://127.0.0.1:*";
  const Status status = StartKvPublisher(settings).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(Spelled),
            "<kv_events_endpoint> needs libzmq, which this program was built without");
  EXPECT_NE(status.hint(Spelled).find("libzmq3-dev"), std::string::npos) << status.hint(Spelled);
}

}  // namespace
}  // namespace kuiper
