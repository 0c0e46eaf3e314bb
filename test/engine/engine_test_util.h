// Helpers for tests of whole engines: prompts of ids, running a request, comparing results bit for
// bit.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/ops/ops.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper {

// A prompt of ids in the model's vocabulary, different for every seed.
inline std::vector<int32_t> Prompt(int length, int vocab, int seed = 1) {
  std::vector<int32_t> ids;
  uint32_t state = 12345u * seed + 1;
  for (int i = 0; i < length; ++i) {
    state = state * 1664525u + 1013904223u;
    ids.push_back(static_cast<int32_t>((state >> 8) % vocab));
  }
  return ids;
}

// One of the random checkpoints in test/data/goldens: ids in, ids out.
inline EngineConfig GoldenConfig(const std::string& golden = "qwen3-gqa2-d128-f32") {
  EngineConfig config;
  config.model_path = test::Source("test/data/goldens/" + golden);
  config.need_tokenizer = false;
  return config;
}

// Copies the model at `path` into the empty `dir`, with exactly these end-of-sequence tokens.
inline void CopyWithEos(const std::string& path, const std::vector<int32_t>& eos,
                        const test::TempDir& dir) {
  std::filesystem::copy(path, dir.path());
  const auto edit = [&](const char* name, const auto& change) {
    const std::string file = dir / name;
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    if (std::filesystem::exists(file)) json = nlohmann::ordered_json::parse(std::ifstream(file));
    change(&json);
    std::ofstream(file) << json;
  };
  edit("generation_config.json", [&](auto* json) { *json = {{"eos_token_id", eos}}; });
  edit("config.json", [&](auto* json) { (*json)["eos_token_id"] = eos; });
  if (std::filesystem::exists(dir / "tokenizer_config.json")) {
    edit("tokenizer_config.json", [](auto* json) { json->erase("eos_token"); });
  }
}

// The emulated device and the GPU, as far as available.
inline std::vector<Device> Accelerators() {
  std::vector<Device> devices;
  for (DeviceType type : {DeviceType::kSimt, DeviceType::kCUDA}) {
    if (MakeOps({type, 0}, {}).ok()) devices.push_back({type, 0});
  }
  return devices;
}

inline std::vector<Device> CpuAndAccelerators() {
  std::vector<Device> devices = Accelerators();
  devices.insert(devices.begin(), Device{});
  return devices;
}

// The name of a test for one device.
inline std::string NameOfDevice(const ::testing::TestParamInfo<Device>& info) {
  if (info.param.type == DeviceType::kCPU) return "cpu";
  return info.param.type == DeviceType::kSimt ? "simt" : "cuda";
}

inline std::unique_ptr<Engine> Create(const EngineConfig& config) {
  auto engine = Engine::Create(config);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

inline int Vocab(const Engine& engine) {
  return engine.model_config().decoder.vocab;
}

inline Completion RunToEnd(Engine& engine, Request request) {
  auto completion = engine.Generate(std::move(request));
  EXPECT_TRUE(completion.ok()) << completion.status().message();
  return completion.ok() ? std::move(completion).value() : Completion{};
}

// Runs a request while no other runs. Checks that the events of each sample match its tokens and
// its text.
inline std::vector<Completion> RunSamples(Engine& engine, const Request& request) {
  const auto id = engine.Add(request);
  EXPECT_TRUE(id.ok()) << id.status().message();
  if (!id.ok()) return {};
  std::vector<Completion> seen(request.num_samples);
  while (engine.HasWork()) {
    for (const TokenEvent& event : engine.Step()) {
      EXPECT_EQ(event.request, *id);
      Completion& c = seen.at(event.sample);
      EXPECT_EQ(c.finish, FinishReason::kNone) << "an event behind the last one";
      if (event.token.has_value()) c.tokens.push_back(*event.token);
      c.text += event.text;
      c.finish = event.finish;
    }
  }
  std::vector<Completion> completions;
  for (int i = 0; i < request.num_samples; ++i) {
    completions.push_back(engine.Take(*id, i).value());
    EXPECT_EQ(seen[i].tokens, completions[i].tokens) << "sample " << i;
    EXPECT_EQ(seen[i].text, completions[i].text) << "sample " << i;
    EXPECT_EQ(seen[i].finish, completions[i].finish) << "sample " << i;
  }
  return completions;
}

// Runs requests, each of which joins while earlier ones run.
inline std::vector<Completion> RunTogether(Engine& engine, const std::vector<Request>& requests) {
  std::vector<int64_t> ids;
  for (const Request& request : requests) {
    const auto id = engine.Add(request);
    EXPECT_TRUE(id.ok()) << id.status().message();
    ids.push_back(id.ok() ? *id : 0);
    engine.Step();
  }
  while (engine.HasWork()) engine.Step();
  std::vector<Completion> completions;
  for (const int64_t id : ids) completions.push_back(engine.Take(id).value());
  return completions;
}

inline void ExpectSameBits(const Completion& a, const Completion& b, const std::string& what) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  ASSERT_EQ(a.logits.size(), b.logits.size()) << what;
  ASSERT_FALSE(a.logits.empty()) << what;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a.logits[i], &b.logits[i], sizeof(float)), 0)
        << what << ": logit " << i << " is " << a.logits[i] << " and " << b.logits[i];
  }
}

}  // namespace kuiper
