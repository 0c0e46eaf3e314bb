#include "kuiper/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace kuiper {
namespace {

using ::testing::ExitedWithCode;

Status Fail() {
  return {StatusCode::kModel, "config.json: no hidden_size", "check the folder"};
}
StatusOr<std::unique_ptr<int>> Box(int value) {
  if (value < 0) return Status(StatusCode::kInput, "negative");
  return std::make_unique<int>(value);
}

TEST(StatusTest, MessageIsOneLineWithoutControlCharacters) {
  const Status status(StatusCode::kModel, "a.json: key \"x\ny\x1b[2J\" is \x7f odd: 你好");
  EXPECT_EQ(status.message(), "a.json: key \"x y [2J\" is   odd: 你好");
}

std::string AsFlag(std::string_view name) {
  return "--" + std::string(name);
}

TEST(StatusTest, ParametersAreSpelledByWhoShowsThem) {
  const Status status(StatusCode::kResourceExhausted,
                      Param("pages") + " and " + Param("swap_space"),
                      "raise " + Param("pages") + "\nor not");
  EXPECT_EQ(status.message(), "pages and swap_space");
  EXPECT_EQ(status.message(AsFlag), "--pages and --swap_space");
  EXPECT_EQ(status.hint(), "raise pages\nor not");
  EXPECT_EQ(status.hint(AsFlag), "raise --pages\nor not");
  const Status outer(StatusCode::kInternal, "a\tb: " + status.message(Param), status.hint(Param));
  EXPECT_EQ(outer.message(AsFlag), "a b: --pages and --swap_space");
  EXPECT_EQ(outer.hint(AsFlag), status.hint(AsFlag));
}

TEST(StatusTest, MarksOfOthersAreNoParameters) {
  for (const char* text : {"\x0E", "\x0F", "a\x0F\x0E b", "\x0E x"}) {
    const std::string message = Status(StatusCode::kInput, text).message(AsFlag);
    EXPECT_EQ(message.find_first_of("\x0E\x0F"), std::string::npos);
    EXPECT_EQ(message.find("--"), std::string::npos) << message;
  }
}

TEST(StatusTest, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(OkStatus().code(), StatusCode::kOk);
}

TEST(StatusTest, CarriesCodeMessageAndHint) {
  const Status status = Fail();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kModel);
  EXPECT_EQ(status.message(), "config.json: no hidden_size");
  EXPECT_EQ(status.hint(), "check the folder");
}

TEST(StatusTest, StatusOrHoldsAValueThatOnlyMoves) {
  StatusOr<std::unique_ptr<int>> box = Box(7);
  ASSERT_TRUE(box.ok());
  EXPECT_TRUE(box.status().ok());
  EXPECT_EQ(**box, 7);
  EXPECT_EQ(*box->get(), 7);
  const std::unique_ptr<int> taken = std::move(box).value();
  EXPECT_EQ(*taken, 7);
}

TEST(StatusTest, StatusOrHoldsAStatus) {
  const StatusOr<std::unique_ptr<int>> box = Box(-1);
  EXPECT_FALSE(box.ok());
  EXPECT_EQ(box.status().code(), StatusCode::kInput);
}

Status ReturnIfError(const Status& first, int* evaluations) {
  KU_RETURN_IF_ERROR((++*evaluations, first));
  ++*evaluations;
  return OkStatus();
}

TEST(StatusTest, ReturnIfErrorReturnsOnlyErrorsAndEvaluatesOnce) {
  int evaluations = 0;
  EXPECT_TRUE(ReturnIfError(OkStatus(), &evaluations).ok());
  EXPECT_EQ(evaluations, 2);
  EXPECT_EQ(ReturnIfError(Fail(), &evaluations).hint(), "check the folder");
  EXPECT_EQ(evaluations, 3);
}

// Uses several macros in one scope, with a declaration and with an existing variable.
StatusOr<int> Sum(int a, int b, int c) {
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Box(a));
  KU_ASSIGN_OR_RETURN(std::unique_ptr<int> second, Box(b));
  const int sum = *first + *second;
  KU_ASSIGN_OR_RETURN(second, Box(c));
  return sum + *second;
}

TEST(StatusTest, AssignOrReturnMovesTheValueOrPassesTheStatus) {
  const StatusOr<int> sum = Sum(1, 2, 3);
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(*sum, 6);
  EXPECT_EQ(Sum(1, -2, 3).status().message(), "negative");
  EXPECT_EQ(Sum(1, 2, -3).status().code(), StatusCode::kInput);
}

TEST(StatusDeathTest, ContractsEndTheProcessWithExitCode1) {
  const StatusOr<std::unique_ptr<int>> bad = Box(-1);
  EXPECT_EXIT((void)bad.value(), ExitedWithCode(1), "negative");
  EXPECT_EXIT((void)StatusOr<int>(OkStatus()), ExitedWithCode(1), "OK status");
}

TEST(CheckDeathTest, SaysWhereAndWhat) {
  const int pages = 3;
  EXPECT_EXIT(KU_CHECK(pages == 4, "pages " + std::to_string(pages)), ExitedWithCode(1),
              "status_test.cpp:[0-9]+: pages == 4: pages 3");
  EXPECT_EXIT(KU_CHECK(pages == 4), ExitedWithCode(1), "pages == 4");
}

TEST(CheckTest, EvaluatesItsConditionOnce) {
  int evaluations = 0;
  KU_CHECK(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

}  // namespace
}  // namespace kuiper
