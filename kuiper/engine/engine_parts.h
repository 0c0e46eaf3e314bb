// The parts of an Engine; engine_setup.cpp creates them. Private to engine*.cpp and to tests of the
// parts as a whole.
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
  EngineConfig config;  // with the effective max_context etc.
  MemoryPlan plan;
  // Null in an engine made by MakeContiguousEngine: the other engine owns the objects that both
  // use.
  std::unique_ptr<const Tokenizer> own_tokenizer;
  std::unique_ptr<Ops> own_ops;
  std::unique_ptr<Model> own_model;
  const Tokenizer* tokenizer = nullptr;  // null: the model has none
  Ops* ops = nullptr;
  Model* model = nullptr;
  std::unique_ptr<PictureStore> pictures;  // null: pictures are not accepted
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<KvStorage> storage;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<RequestTable> requests;
  std::unique_ptr<StepLoop> steps;
  double load_ms = 0;
};

// Reads the tokenizer if `tokenizer` is null.
StatusOr<std::unique_ptr<EngineParts>> MakeEngineParts(
    const EngineConfig& config, OpenedModel model, std::unique_ptr<Tokenizer> tokenizer = nullptr);

// See Engine::memory_in_use and Engine::MakeContiguousEngine.
size_t UsedBytes(const EngineParts& s);
StatusOr<std::unique_ptr<EngineParts>> MakeContiguousParts(EngineParts& other, int num_tokens,
                                                           int64_t picture_tokens, OnEncoding ask);

}  // namespace kuiper
