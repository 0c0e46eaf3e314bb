#include "kuiper/server/metrics.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

TEST(Metrics, BucketsCountWhatIsAtMostTheirBound) {
  Histogram histogram({1, 2.5});
  histogram.Add(1);
  histogram.Add(2, 3);
  histogram.Add(100);
  EXPECT_EQ(histogram.Text("h", "a=\"b\""),
            "h_bucket{a=\"b\",le=\"1\"} 1\n"
            "h_bucket{a=\"b\",le=\"2.5\"} 4\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 5\n"
            "h_sum{a=\"b\"} 107\n"
            "h_count{a=\"b\"} 5\n");
}

TEST(Metrics, NamesAndLabels) {
  Metrics metrics;
  metrics.num_running = 3;
  metrics.finished["stop"] = 2;
  metrics.answers[404] = 1;
  metrics.kv.pages_total = 4;
  metrics.kv.pages_used = 1;
  metrics.kv.page_size = 16;
  const std::string text = metrics.Text("vllm", "a\"b\\c");
  for (const char* line :
       {"# TYPE vllm:num_requests_running "
        "gauge\nvllm:num_requests_running{model_name=\"a\\\"b\\\\c\"} 3\n",
        "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\\\\c\"} 0.25\n",
        "vllm:request_success_total{model_name=\"a\\\"b\\\\c\",finished_reason=\"stop\"} 2\n",
        "vllm:http_requests_total{model_name=\"a\\\"b\\\\c\",status=\"404\"} 1\n",
        "block_size=\"16\",num_gpu_blocks=\"4\"} 1\n",
        "# TYPE vllm:time_to_first_token_seconds histogram\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

}  // namespace
}  // namespace kuiper
