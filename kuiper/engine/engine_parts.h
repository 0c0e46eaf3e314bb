// What an Engine is made of; engine_setup.cpp puts it together. Private to engine*.cpp and to tests
// of the parts as a whole.
#pragma once

#include <memory>

#include "kuiper/engine/engine.h"
#include "kuiper/engine/kv_storage.h"
#include "kuiper/engine/model_runner.h"
#include "kuiper/engine/picture_store.h"
#include "kuiper/engine/request_table.h"
#include "kuiper/engine/scheduler.h"
#include "kuiper/engine/step_loop.h"
#include "kuiper/model/model.h"

namespace kuiper {

// Members are destroyed in reverse order: users before what they use.
struct EngineParts {
  EngineConfig config;  // with max_context etc. as they really are
  MemoryPlan plan;
  // Null in an engine beside another one, which owns what both use.
  std::unique_ptr<const Tokenizer> own_tokenizer;
  std::unique_ptr<Ops> own_ops;
  std::unique_ptr<Model> own_model;
  const Tokenizer* tokenizer = nullptr;  // null: there is none
  Ops* ops = nullptr;
  Model* model = nullptr;
  std::unique_ptr<PictureStore> pictures;  // null: none are taken
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<KvStorage> storage;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<RequestTable> requests;
  std::unique_ptr<StepLoop> steps;
  double load_ms = 0;
};

// Reads the tokenizer unless it is given.
StatusOr<std::unique_ptr<EngineParts>> MakeEngineParts(
    const EngineConfig& config, OpenedModel model, std::unique_ptr<Tokenizer> tokenizer = nullptr);

// See Engine::memory_in_use and Engine::ContiguousBeside.
size_t UsedBytes(const EngineParts& s);
StatusOr<std::unique_ptr<EngineParts>> MakePartsBeside(EngineParts& other, int num_tokens,
                                                       int64_t picture_tokens, OnEncoding ask);

}  // namespace kuiper
