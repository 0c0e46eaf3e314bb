// Requests that are aborted while their pictures are encoded. The encoder stops, and other
// requests, including later ones, get the same results as without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/engine/picture_engines.h"

namespace kuiper {
namespace {

using test::FindPrompt;
using test::ImageIds;
using test::Joined;
using test::kNewTokens;
using test::MakePicture;
using test::MakeRequest;
using test::Parts;
using test::PicturePrompt;
using test::PicturesTest;
using test::TextIds;

constexpr int kPage = 8;
constexpr int kBefore = kPage + 1;  // tokens of text before the picture: a page, and one more

PicturePrompt TextBefore() {
  return Joined("before", {TextIds("before", kBefore)}, {});
}
PicturePrompt PromptOf(int num_tokens) {
  const PatchGrid grid{1, 4, 4};
  const std::vector<int32_t> image = ImageIds(grid);
  const int behind = num_tokens - kBefore - static_cast<int>(image.size());
  return Joined("p", {TextIds("before", kBefore), image, TextIds("behind", behind)},
                {MakePicture("a", grid)});
}

// An engine whose steps are run by the test. At its end all pages must be free again.
class Stepped {
 public:
  explicit Stepped(const EngineConfig& config) : parts_(Parts(config)) {}
  ~Stepped() {
    parts_->storage->ClearReuse();
    EXPECT_EQ(parts_->storage->pool().num_used(), 0);
  }

  int64_t Add(Request request) { return parts_->requests->Add(std::move(request)).value(); }
  void Step() { parts_->steps->Step(); }
  void StepToEnd() {
    while (!parts_->requests->empty()) Step();
  }
  StatusOr<Completion> Take(int64_t id) { return parts_->requests->Take(id, 0); }
  Completion Run(Request request) {
    const int64_t id = Add(std::move(request));
    StepToEnd();
    return Take(id).value();
  }
  // Pages that neither this request nor only the prefix cache holds.
  int NumHeldBeside(int64_t id) {
    const int own = static_cast<int>(parts_->requests->PagesOf(id, 0)->size());
    KvReuse* reuse = parts_->storage->reuse();
    const int kept = reuse == nullptr ? 0 : reuse->num_evictable();
    return parts_->storage->pool().num_used() - kept - own;
  }
  int64_t num_encoded() const { return parts_->pictures->num_encoded(); }

 private:
  std::unique_ptr<EngineParts> parts_;
};

// Pages end one token before the prompt ends, at its end, and one token after. The step that is not
// launched begins with the prompt, or after a page that the prefix cache has.
TEST_P(PicturesTest, WhoLeavesAtAnyLayerLeavesNothing) {
  EngineConfig config = Config();
  config.page_size = kPage;
  config.max_num_seqs = 3;
  const PicturePrompt text = FindPrompt("text");
  Stepped cold(config);
  const Completion expected_text = cold.Run(MakeRequest(text));
  config.prefix_cache = true;
  for (const int num_tokens : Some({3 * kPage - 1, 3 * kPage, 3 * kPage + 1})) {
    const PicturePrompt prompt = PromptOf(num_tokens);
    const Completion expected = cold.Run(MakeRequest(prompt));
    for (const int asked : Some({0, 1, 2, 3})) {  // the encoder has 3 layers
      for (const bool run_ahead : {false, true}) {
        for (const bool knows_text : {false, true}) {
          int64_t leaving = 0;
          int num_asked = 0;
          config.run_ahead = run_ahead;
          config.on_encoding = [&](int64_t request, double) {
            return request != leaving || num_asked++ < asked;
          };
          const std::string what = std::to_string(num_tokens) + " tokens, stopped at " +
                                   std::to_string(asked) + (run_ahead ? ", ahead" : "") +
                                   (knows_text ? ", behind a page" : "");
          Stepped engine(config);
          if (knows_text) engine.Run(MakeRequest(TextBefore(), 1));
          Request beside = MakeRequest(text);
          beside.keep_logits = !run_ahead;  // no step runs ahead of logits that are kept
          const int64_t runs = engine.Add(std::move(beside));
          for (int i = 0; i < 2; ++i) engine.Step();
          leaving = engine.Add(MakeRequest(prompt));
          engine.Step();
          const StatusOr<Completion> left = engine.Take(leaving);
          ASSERT_TRUE(left.ok()) << what;
          EXPECT_EQ(left->finish, FinishReason::kInterrupt) << what;
          EXPECT_TRUE(left->tokens.empty()) << what;
          EXPECT_EQ(num_asked, asked + 1) << what;
          EXPECT_EQ(engine.num_encoded(), 0) << what;
          EXPECT_EQ(engine.NumHeldBeside(runs), 0) << what;
          const int known = knows_text ? kPage : 0;
          for (const int num_cached : {known, (num_tokens - 1) / kPage * kPage}) {
            const Completion later = engine.Run(MakeRequest(prompt));
            ExpectSameBits(later, expected, what);
            EXPECT_EQ(later.cached_tokens, num_cached) << what;
            EXPECT_EQ(engine.num_encoded(), 1) << what;
          }
          const Completion others = engine.Take(runs).value();
          EXPECT_EQ(others.tokens, expected_text.tokens) << what;
          if (!run_ahead) ExpectSameBits(others, expected_text, what);
        }
      }
    }
  }
}

// Several sequences of the request wait for the first one.
TEST_P(PicturesTest, SamplesAndBeamsLeaveNothing) {
  EngineConfig config = Config();
  config.page_size = kPage;
  config.max_num_seqs = 3;
  const PicturePrompt prompt = PromptOf(3 * kPage);
  const Completion expected = Stepped(config).Run(MakeRequest(prompt));
  config.prefix_cache = true;
  int64_t leaving = 0;
  config.on_encoding = [&](int64_t request, double) { return request != leaving; };
  for (const bool searches : {false, true}) {
    Stepped engine(config);
    Request request = MakeRequest(prompt);
    request.keep_logits = false;
    (searches ? request.beam_width : request.num_samples) = 2;
    leaving = engine.Add(std::move(request));
    engine.StepToEnd();
    EXPECT_EQ(engine.Take(leaving)->finish, FinishReason::kInterrupt);
    const Completion later = engine.Run(MakeRequest(prompt));
    ExpectSameBits(later, expected, searches ? "beams" : "samples");
    EXPECT_EQ(later.cached_tokens, 0);
  }
}

// The encoder stops as soon as no request waits for the picture.
TEST_P(PicturesTest, APictureThatSomebodyElseWaitsForIsEncoded) {
  EngineConfig config = Config();
  config.max_num_seqs = 3;
  const PicturePrompt prompt = PromptOf(2 * kPage);
  for (const int num_leaving : {0, 1, 2}) {
    std::vector<double> shares;
    config.on_encoding = [&](int64_t request, double done) {
      shares.push_back(done);
      return request > num_leaving || done == 0;
    };
    Stepped engine(config);
    std::vector<int64_t> ids;
    for (int i = 0; i < 2; ++i) ids.push_back(engine.Add(MakeRequest(prompt)));
    const int64_t text = engine.Add(MakeRequest(FindPrompt("text")));
    engine.StepToEnd();
    for (int i = 0; i < 2; ++i) {
      const Completion answer = engine.Take(ids[i]).value();
      const bool left = i < num_leaving;
      EXPECT_EQ(answer.finish, left ? FinishReason::kInterrupt : FinishReason::kLength);
      // If another request waits for the picture, the step that has begun continues.
      const size_t most = !left ? kNewTokens : num_leaving == 1 ? 1 : 0;
      EXPECT_LE(answer.tokens.size(), most);
    }
    EXPECT_EQ(engine.Take(text)->tokens, FindPrompt("text").greedy);
    EXPECT_EQ(engine.num_encoded(), num_leaving == 2 ? 0 : 1);
    EXPECT_TRUE(std::ranges::is_sorted(shares));
    EXPECT_EQ(shares.front(), 0);
    EXPECT_EQ(shares.back() == 1, num_leaving < 2);
  }
}

}  // namespace
}  // namespace kuiper
