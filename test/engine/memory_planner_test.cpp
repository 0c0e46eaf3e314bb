#include "kuiper/engine/memory_planner.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>

#include "kuiper/engine/engine_memory.h"
#include "kuiper/kernels/cpu/host_memory.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

MemoryRequest Qwen3_8B() {
  MemoryRequest r;
  r.weight_bytes = 5'700'000'000;
  r.activation_bytes = 300'000'000;
  r.workspace_bytes = 400'000'000;
  r.kv = {.layers = 36,
          .kv_heads = 8,
          .head_dim = 128,
          .num_pages = 0,
          .page_size = 16,
          .format = KvFormat::Of(DType::kF16)};
  r.max_context = 8192;
  r.available_bytes = 16'000'000'000;
  r.utilization = 0.8;
  return r;
}

TEST(MemoryPlannerTest, CountsEveryPart) {
  const auto plan = PlanMemory(Qwen3_8B());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_pages, 512);
  // 147456 bytes per token of Qwen3-8B in FP16; 512 pages and the null page.
  EXPECT_EQ(plan->kv_bytes, 513u * 16 * 147456);
  EXPECT_EQ(plan->total_bytes(), 6'400'000'000 + plan->kv_bytes);
  EXPECT_EQ(plan->budget_bytes, 12'800'000'000u);
  EXPECT_NE(plan->Describe().find("KV cache 1.2 GB"), std::string::npos) << plan->Describe();
}

TEST(MemoryPlannerTest, ContiguousKeepsARowPerSequence) {
  MemoryRequest r = Qwen3_8B();
  r.paged = false;
  r.kv.page_size = r.max_context;
  r.max_seqs = 2;
  const auto plan = PlanMemory(r);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_pages, 2);
  EXPECT_EQ(plan->kv_bytes, 2u * 8192 * 147456);
}

TEST(MemoryPlannerTest, WeightsAreCopiedWhereThereIsRoomForThemTwice) {
  MemoryPlan plan{.weight_bytes = 64 << 20, .activation_bytes = 1 << 20, .kv_bytes = 300 << 20};
  plan.budget_bytes = 129 << 20;
  const auto of = [&](WeightStorage storage, std::optional<ExpectedWork> work = {}) {
    return UseOfMapped(storage, plan, work);
  };
  EXPECT_EQ(of(WeightStorage::kAuto), MappedWeights::kCopy)
      << "the whole KV cache will not be used";
  EXPECT_EQ(of(WeightStorage::kMapped), MappedWeights::kRead);
  --plan.budget_bytes;
  EXPECT_EQ(of(WeightStorage::kAuto), MappedWeights::kRead);
  EXPECT_EQ(of(WeightStorage::kCopied), MappedWeights::kCopy);
  plan.budget_bytes = 1 << 30;
  EXPECT_EQ(of(WeightStorage::kAuto), MappedWeights::kCopy);
  EXPECT_EQ(of(WeightStorage::kAuto, ExpectedWork{31, 63}), MappedWeights::kRead) << "ends before";
  EXPECT_EQ(of(WeightStorage::kAuto, ExpectedWork{32, 63}), MappedWeights::kCopy);
  EXPECT_EQ(of(WeightStorage::kAuto, ExpectedWork{2048, 0}), MappedWeights::kCopy);
  EXPECT_EQ(of(WeightStorage::kCopied, ExpectedWork{1, 1}), MappedWeights::kCopy);
  --plan.weight_bytes;
  EXPECT_EQ(of(WeightStorage::kAuto), MappedWeights::kRead) << "small";
}

TEST(MemoryPlannerTest, RefusesWithNumbersAndWhatWouldFit) {
  MemoryRequest r = Qwen3_8B();
  r.available_bytes = 8'600'000'000;
  const auto plan = PlanMemory(r);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(plan.status().message(),
            "needs 7.6 GB (weights 5.7, KV 1.2, workspace 0.70) but 6.9 GB is available (limit 80% "
            "of 8.6 GB)");
  EXPECT_EQ(plan.status().hint(),
            "max_context 2048 would need 6.7 GB; max_context 1024 would need 6.6 GB\n"
            "gpu_memory_utilization 0.885 would do");
}

// 6.4 GB and 513 pages of 16 x 147456 bytes are 0.3805 of 20 GB.
TEST(MemoryPlannerTest, NamesTheShareWhereTheDeviceIsLargeEnough) {
  MemoryRequest r = Qwen3_8B();
  r.available_bytes = 20'000'000'000;
  r.utilization = 0.0001;
  EXPECT_EQ(PlanMemory(r).status().hint(), "gpu_memory_utilization 0.381 would do");
  EXPECT_NE(PlanMemory(r).status().message().find("(limit 0.01% of 20.0 GB)"), std::string::npos);
  r.utilization = 0.381;
  EXPECT_TRUE(PlanMemory(r).ok());
  r.utilization = 0.380;
  EXPECT_FALSE(PlanMemory(r).ok());
  r.utilization = 0.0001;
  r.max_seqs = 16;
  EXPECT_EQ(PlanMemory(r).status().hint(), "gpu_memory_utilization 0.381 would do")
      << "one context is enough";
}

// Contiguous: a shorter context makes every row shorter, and each sequence has a row.
TEST(MemoryPlannerTest, WithoutPagesTheHintCountsShorterRows) {
  MemoryRequest r = Qwen3_8B();
  r.available_bytes = 8'600'000'000;
  r.paged = false;
  r.max_seqs = 2;
  const auto plan = [&r](int context) {
    r.max_context = r.kv.page_size = context;
    return PlanMemory(r);
  };
  EXPECT_EQ(plan(8192).status().hint(),
            "max_context 1024 would need 6.7 GB; max_context 512 would need 6.6 GB");
  EXPECT_FALSE(plan(2048).ok());
  EXPECT_EQ(plan(1024)->kv_bytes, 2u * 1024 * 147456);
}

// Pages are allocated as sequences grow, so a pool can serve more sequences than full contexts.
TEST(MemoryPlannerTest, ManySequencesShareWhatTheBudgetHolds) {
  MemoryRequest r = Qwen3_8B();
  r.max_seqs = 16;  // 19 GB of contexts
  for (const size_t swap_bytes : {size_t{0}, size_t{1'000'000'000}, size_t{100'000'000'000}}) {
    r.swap_bytes = swap_bytes;
    for (const bool swaps_to_host : {false, true}) {
      r.swaps_to_host = swaps_to_host;
      const auto plan = PlanMemory(r);
      ASSERT_TRUE(plan.ok());
      EXPECT_GE(plan->num_pages, 512);
      EXPECT_LE(plan->total_bytes(), plan->budget_bytes);
      EXPECT_GT(plan->total_bytes(), plan->budget_bytes - 3 * 16 * 147456);
    }
  }
  r.swap_bytes = 0;
  r.max_seqs = 2;
  EXPECT_EQ(PlanMemory(r)->num_pages, 1024) << "what all of them can fill, and no more";
  r.max_seqs = 16;
  r.available_bytes = 9'600'000'000;
  EXPECT_EQ(PlanMemory(r)->num_pages, 541);  // 1.28 GB are 542 pages
  r.available_bytes = 8'600'000'000;
  EXPECT_EQ(PlanMemory(r).status().hint(),
            "max_context 2048 would need 6.7 GB; max_context 1024 would need 6.6 GB\n"
            "gpu_memory_utilization 0.885 would do");
  r.available_bytes = 16'000'000'000;
  r.paged = false;
  r.kv.page_size = r.max_context;
  EXPECT_EQ(PlanMemory(r).status().code(), StatusCode::kResourceExhausted) << "a row each";
}

TEST(MemoryPlannerTest, SaysSoWhenNothingFits) {
  MemoryRequest r = Qwen3_8B();
  r.available_bytes = 5'000'000'000;
  const auto plan = PlanMemory(r);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().hint(), "no context length fits: use a smaller model");
}

// A smaller context would not help where the number of blocks is given.
TEST(MemoryPlannerTest, HintNamesTheOptionThatDecides) {
  MemoryRequest r = Qwen3_8B();
  r.num_blocks = 100'000;
  EXPECT_EQ(PlanMemory(r).status().hint(), "num_blocks 2711 would fit");
  r.num_blocks = 2711;
  EXPECT_TRUE(PlanMemory(r).ok());
  r.num_blocks = 2712;
  EXPECT_FALSE(PlanMemory(r).ok());
  r.num_blocks.reset();
  r.max_seqs = 16;
  r.kv_cache_bytes = 10'000'000'000;
  EXPECT_EQ(PlanMemory(r).status().hint(), "kv_cache_memory 6103M would fit");
  r.kv_cache_bytes = size_t{6103} << 20;
  EXPECT_TRUE(PlanMemory(r).ok());
}

TEST(MemoryPlannerTest, AbsurdSizesAreRefusedWithoutOverflow) {
  MemoryRequest r = Qwen3_8B();
  constexpr int kHuge = std::numeric_limits<int>::max();
  r.max_context = 1 << 24;
  r.max_seqs = kHuge;
  r.kv.page_size = 1;
  EXPECT_EQ(PlanMemory(r).status().code(), StatusCode::kResourceExhausted);
  r.paged = false;
  r.kv.page_size = r.max_context;
  EXPECT_EQ(PlanMemory(r).status().code(), StatusCode::kResourceExhausted);
  r = Qwen3_8B();
  r.num_blocks = kHuge;
  EXPECT_EQ(PlanMemory(r).status().code(), StatusCode::kResourceExhausted);
  r.available_bytes = 32'000'000'000;  // enough, but slots are counted in an int32
  r.kv.layers = r.kv.kv_heads = r.kv.head_dim = r.kv.page_size = 1;
  EXPECT_EQ(PlanMemory(r).status().code(), StatusCode::kInvalidArgument);
}

TEST(MemoryPlannerTest, AbsoluteSizesOverrideTheContext) {
  MemoryRequest r = Qwen3_8B();
  r.num_blocks = 7;
  EXPECT_EQ(PlanMemory(r)->num_pages, 7);
  r.num_blocks.reset();
  r.kv_cache_bytes = 10 * r.kv.page_bytes() + 5;
  const auto plan = PlanMemory(r);
  EXPECT_EQ(plan->num_pages, 9);  // and the null page
  EXPECT_LE(plan->kv_bytes, *r.kv_cache_bytes);
  r.kv_cache_bytes = r.kv.page_bytes();
  EXPECT_EQ(PlanMemory(r).status().code(), StatusCode::kResourceExhausted);
}

TEST(MemoryPlannerTest, GraphsCountAndAreNamed) {
  MemoryRequest r = Qwen3_8B();
  EXPECT_EQ(PlanMemory(r)->Describe().find("graphs"), std::string::npos);
  const size_t without = PlanMemory(r)->total_bytes();
  r.graph_bytes = 20'000'000;
  EXPECT_EQ(PlanMemory(r)->total_bytes(), without + 20'000'000);
  EXPECT_NE(PlanMemory(r)->Describe().find("graphs 0.020 GB"), std::string::npos);
}

// Swap space has at most as many pages as the cache. If it is in other memory than the device's, it
// is listed separately from the total.
TEST(MemoryPlannerTest, SwapSpaceIsListedWhereItIs) {
  MemoryRequest r = Qwen3_8B();
  r.num_blocks = 10;
  const size_t without = PlanMemory(r)->total_bytes();
  EXPECT_EQ(PlanMemory(r)->Describe().find("swap"), std::string::npos);
  r.swap_bytes = 5 * r.kv.page_bytes() + 1;
  EXPECT_EQ(PlanMemory(r)->total_bytes(), without + 5 * r.kv.page_bytes());
  EXPECT_NE(PlanMemory(r)->Describe().find(" + swap "), std::string::npos);
  r.swaps_to_host = true;
  EXPECT_EQ(PlanMemory(r)->total_bytes(), without);
  EXPECT_EQ(PlanMemory(r)->host_swap_bytes, 5 * r.kv.page_bytes());
  const std::string text = PlanMemory(r)->Describe();
  EXPECT_NE(text.find("available), and swap "), std::string::npos) << text;
  EXPECT_NE(text.find(" GB of host memory"), std::string::npos) << text;
  r.swap_bytes = 20 * r.kv.page_bytes();
  EXPECT_EQ(PlanMemory(r)->host_swap_bytes, 10 * r.kv.page_bytes());
}

// A context longer by one token would not fit: paged and contiguous, with the whole budget and with
// a given number of blocks.
TEST(MemoryPlannerTest, TheLargestContextIsTheLastThatFits) {
  for (const bool paged : {false, true}) {
    for (const size_t available : {8'400'000'000u, 9'600'000'000u, 16'000'000'000u}) {
      const auto request_of = [&](int context) {
        MemoryRequest r = Qwen3_8B();
        r.paged = paged;
        r.available_bytes = available;
        r.max_context = context;
        r.workspace_bytes += 100 * context;
        if (!paged) r.kv.page_size = context;
        return r;
      };
      constexpr int kLimit = 32768;
      const int largest = LargestContext(kLimit, request_of);
      EXPECT_GT(largest, 0);
      EXPECT_TRUE(PlanMemory(request_of(largest)).ok());
      if (largest < kLimit) {
        EXPECT_FALSE(PlanMemory(request_of(largest + 1)).ok());
      }
      EXPECT_EQ(largest == kLimit, available == 16'000'000'000u) << largest;
    }
  }
  const auto with_blocks = [](int context) {
    MemoryRequest r = Qwen3_8B();
    r.max_context = context;
    r.num_blocks = 7;
    return r;
  };
  EXPECT_EQ(LargestContext(32768, with_blocks), 7 * 16);
  const auto too_large = [](int context) {
    MemoryRequest r = Qwen3_8B();
    r.max_context = context;
    r.available_bytes = 1'000'000'000;
    return r;
  };
  EXPECT_EQ(LargestContext(32768, too_large), 0);
}

// Each row of the table agrees with the plan for its type.
TEST(MemoryTableTest, EachRowIsThePlanOfItsType) {
  const OpenedModel model = OpenModel(GoldenConfig().model_path).value();
  for (const bool paged : {false, true}) {
    EngineConfig config = GoldenConfig();
    config.paged = paged;
    config.max_context = 100;
    config.num_blocks = paged ? std::optional(10) : std::nullopt;
    const auto table = Engine::PlanTable(config, model);
    ASSERT_TRUE(table.ok()) << table.status().message();
    ASSERT_EQ(table->rows.size(), std::size(KvFormat::kTable));
    EXPECT_TRUE(table->fits.ok());
    EXPECT_EQ(table->chosen().format, KvFormat::Of(DType::kF32)) << "the type of the weights";
    for (const MemoryTable::Row& row : table->rows) {
      config.kv_format = row.format;
      const auto plan = Engine::Plan(config, model);
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(row.plan.total_bytes(), plan->total_bytes()) << row.format.name();
      // 2 layers, 1 head of 128, K and V.
      EXPECT_EQ(row.kv_bytes_per_1k, 1024u * 2 * 2 * row.format.row_bytes(128));
      EXPECT_EQ(row.largest_context, paged ? 160 : 256) << "the blocks, or the model's limit";
    }
  }
}

TEST(MemoryTableTest, SaysWhatFitsWhereThePlanDoesNot) {
  EngineConfig config = GoldenConfig();
  config.max_context = 256;
  config.memory_utilization = 1e-9;
  const OpenedModel model = OpenModel(config.model_path).value();
  const auto table = Engine::PlanTable(config, model);
  ASSERT_TRUE(table.ok()) << table.status().message();
  // Other programs change the free memory, which both texts state at the end.
  const auto begin = [](const std::string& text) { return text.substr(0, text.find(" of ")); };
  EXPECT_EQ(begin(table->fits.message()), begin(Engine::Plan(config, model).status().message()));
  EXPECT_EQ(table->fits.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(table->chosen().largest_context, 0);
  EXPECT_LT(table->chosen().free_bytes(), 0);
  EXPECT_NE(table->Describe().find("none fits"), std::string::npos);
}

TEST(MemoryTableTest, IsATableOf80Columns) {
  MemoryTable table{.paged = true,
                    .page_size = 256,
                    .max_context = 16777216,
                    .max_num_seqs = 1024,
                    .model_limit = 16777216};
  for (const KvFormat::Entry& entry : KvFormat::kTable) {
    MemoryRequest r = Qwen3_8B();
    r.kv.format = {entry.kind};
    r.graph_bytes = 10'000'000;
    r.swap_bytes = 1'000'000'000;
    r.max_context = 131072;
    table.rows.push_back({.format = r.kv.format,
                          .is_chosen = entry.kind == KvFormat::Kind::kF16,
                          .kv_bytes_per_1k = 1024 * r.kv.token_bytes(),
                          .plan = CountMemory(r).value(),
                          .largest_context = 1048576});
  }
  const std::string text = table.Describe();
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
  }
  EXPECT_EQ(begin, text.size()) << "it ends with a line";
  // 147456 bytes per token: 151 MB per 1024 tokens, 19.3 GB for 131072.
  EXPECT_NE(text.find("  fp16 *          151 MB   19.3 GB   26.7 GB  -13.9 GB          1048576\n"),
            std::string::npos)
      << text;
}

// Within 2 %, with weights used in place (they are mapped, not allocated), copied and converted.
// test/simt/device_care_test.cpp does the same for devices.
TEST(EngineMemoryTest, PlanIsWhatTheEngineAllocates) {
  for (const bool paged : {false, true}) {
    for (const char* weights : {"mapped", "copied", "converted"}) {
      const bool is_mapped = weights == std::string("mapped");
      std::optional<DType> dtype;
      if (weights == std::string("converted")) dtype = DType::kF16;
      for (const int max_seqs : {1, 6}) {
        EngineConfig config = GoldenConfig();
        config.weight_storage = is_mapped ? WeightStorage::kMapped : WeightStorage::kCopied;
        config.ops.num_threads = 2;
        config.paged = paged;
        config.dtype = dtype;
        config.max_context = 128;
        config.max_num_seqs = max_seqs;
        config.prompt_logits = max_seqs > 1;
        if (paged && max_seqs > 1) config.preemption = Preemption::kSwap;
        const size_t before = cpu::AllocatedBytes();
        const auto engine = Create(config);
        ASSERT_NE(engine, nullptr);
        const MemoryPlan& plan = engine->memory_plan();
        double allocated = static_cast<double>(cpu::AllocatedBytes() - before);
        if (is_mapped) allocated += static_cast<double>(plan.weight_bytes);
        EXPECT_NEAR(static_cast<double>(plan.total_bytes()) / allocated, 1, 0.02)
            << "paged " << paged << ", " << max_seqs << " sequences, weights " << weights;
      }
    }
  }
}

// Random weights have the same plan as a file of weights, and are not stored twice.
TEST(EngineMemoryTest, RandomWeightsAreAllocatedOnce) {
  EngineConfig config = GoldenConfig();
  config.max_context = 128;
  const auto from_file = Engine::Plan(config, OpenModel(config.model_path).value());
  const size_t before = cpu::AllocatedBytes();
  const auto engine =
      Engine::Create(config, MakeRandomModel(config.model_path + "/config.json").value()).value();
  const MemoryPlan& plan = engine->memory_plan();
  EXPECT_EQ(plan.weight_bytes, from_file->weight_bytes);
  EXPECT_EQ(plan.total_bytes(), from_file->total_bytes());
  EXPECT_NEAR(
      static_cast<double>(plan.total_bytes()) / static_cast<double>(cpu::AllocatedBytes() - before),
      1, 0.02);
}

}  // namespace
}  // namespace kuiper
