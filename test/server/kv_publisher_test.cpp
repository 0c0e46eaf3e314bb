#include "kuiper/server/kv_publisher.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zmq.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "test/temp_dir.h"

namespace kuiper {
namespace {

struct Batch {
  uint64_t number = 0;
  std::vector<uint64_t> hashes;
};

// A subscriber that asks for a replay of missed messages.
class Latecomer {
 public:
  explicit Latecomer(const std::string& endpoint)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    const int patience_ms = 60000;
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience_ms, sizeof(patience_ms));
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~Latecomer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  Latecomer(const Latecomer&) = delete;

  std::vector<Batch> All() {
    zmq_send(socket_, "", 0, ZMQ_SNDMORE);
    zmq_send(socket_, "\0\0\0\0\0\0\0\0", 8, 0);
    std::vector<Batch> all;
    while (true) {
      EXPECT_EQ(Part(), "");
      uint64_t number = 0;
      for (const char c : Part()) number = number << 8 | static_cast<uint8_t>(c);
      const std::string bytes = Part();
      if (bytes.empty()) break;
      Batch& batch = all.emplace_back(Batch{number, {}});
      const auto json = nlohmann::json::from_msgpack(bytes);
      for (const auto& event : json.at(1)) {
        for (const auto& hash : event.at("block_hashes")) batch.hashes.push_back(hash);
      }
    }
    return all;
  }

 private:
  std::string Part() {
    char bytes[4096];
    const int size = zmq_recv(socket_, bytes, sizeof(bytes), 0);
    EXPECT_TRUE(size >= 0 && size <= static_cast<int>(sizeof(bytes))) << size;
    return {bytes, static_cast<size_t>(std::max(size, 0))};
  }

  void* const context_;
  void* const socket_;
};

// The engine continues, and subscribers see a gap in the sequence numbers.
TEST(KvPublisher, WhatIsTooMuchAtATimeIsLostAndTheNumbersTell) {
  const test::TempDir dir;
  KvPublisherSettings settings;
  settings.endpoint = "ipc://" + (dir / "events");
  settings.replay_endpoint = "ipc://" + (dir / "replay");
  settings.max_pending = 4;
  const auto publisher = StartKvPublisher(settings);
  ASSERT_TRUE(publisher.ok()) << publisher.status().message();
  const PrefixObserver observer = (*publisher)->observer();
  Latecomer latecomer(settings.replay_endpoint);
  uint64_t last = 0;
  const auto publish = [&] { observer({PrefixEvent::Kind::kStored, ++last, 0, {1, 2}}); };
  for (int i = 0; i < 100000; ++i) publish();
  std::vector<Batch> all;
  while (all.empty() || all.back().hashes.back() <= 100000) {
    publish();
    usleep(5000);
    all = latecomer.All();
  }
  EXPECT_EQ(all[0].hashes[0], 1u);
  int num_gaps = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<uint64_t>& hashes = all[i].hashes;
    ASSERT_TRUE(!hashes.empty() && hashes.size() <= settings.max_pending);
    EXPECT_EQ(hashes.back() - hashes.front(), hashes.size() - 1) << "whole runs, " << i;
    if (i == 0) continue;
    const bool is_missing = hashes.front() != all[i - 1].hashes.back() + 1;
    EXPECT_EQ(all[i].number - all[i - 1].number, is_missing ? 2u : 1u) << i;
    num_gaps += static_cast<int>(is_missing);
  }
  EXPECT_GT(num_gaps, 0) << "nothing was too much";
}

}  // namespace
}  // namespace kuiper
