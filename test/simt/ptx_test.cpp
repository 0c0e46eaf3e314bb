// The interpreter of PTX by itself: small kernels of every kind of instruction with answers known
// from the PTX ISA, and what it says about kernels that are wrong.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "emulator/ptx_compare.h"
#include "emulator/ptx_program.h"
#include "emulator/ptx_run.h"
#include "test/simt/device_array.h"
#include "test/simt/schedules.h"

namespace kuiper::simt_test {
namespace {

using simt::ptx::Kernel;

// A kernel of one pointer, out, whose address is in %o plus 8 bytes for each thread (%t).
std::string Module(const std::string& body, const std::string& directives = "") {
  return R"(
.version 9.0
.target sm_87
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry Test(
	.param .u64 Test_param_0
)
)" + directives +
         R"({
	.reg .pred 	%p<9>;
	.reg .b16 	%h<9>;
	.reg .b32 	%r<40>;
	.reg .f32 	%f<40>;
	.reg .b64 	%l<9>;
	.reg .f64 	%d<9>;
	.reg .b64 	%o;
	.reg .b32 	%t;
	.shared .align 16 .b8 tile[1024];
	ld.param.u64 	%l0, [Test_param_0];
	cvta.to.global.u64 	%l0, %l0;
	mov.u32 	%t, %tid.x;
	mul.wide.u32 	%l1, %t, 8;
	add.s64 	%o, %l0, %l1;
)" + body +
         "\n\tret;\n}\n";
}

// Returns what the threads store in out.
std::vector<uint64_t> RunModule(const std::string& text, unsigned threads = 32,
                                size_t shared_bytes = 0) {
  const auto kernels = simt::ptx::ParseModule(text, "test.ptx");
  EXPECT_EQ(kernels.size(), 1u);
  DeviceArray<uint64_t> out(std::vector<uint64_t>(threads, 0));
  const uint64_t* const parameter = out.data();
  simt::ptx::Usage usage;
  simt::ptx::Run(*kernels[0], {{1, 1, 1}, {threads, 1, 1}, shared_bytes},
                 reinterpret_cast<const char*>(&parameter), &usage);
  EXPECT_EQ(usage.launches, 1u);
  return out.ToVector();
}

std::vector<uint64_t> RunBody(const std::string& body, unsigned threads = 32,
                              size_t shared_bytes = 0) {
  return RunModule(Module(body), threads, shared_bytes);
}

uint32_t Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// ---- instructions -----------------------------------------------------------------------------

struct Case {
  const char* body;  // leaves its result in %r0
  uint32_t expected;
};

void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const auto out = RunBody(std::string(c.body) + "\n\tst.global.u32 [%o], %r0;", 1, 64);
    EXPECT_EQ(static_cast<uint32_t>(out[0]), c.expected) << c.body;
  }
}

TEST(PtxTest, Integers) {
  Check({
      {"add.s32 %r0, 2147483647, 1;", 0x80000000},
      {"sub.s32 %r0, 3, 5;", 0xfffffffe},
      {"mul.lo.s32 %r0, 65537, 65537;", 0x00020001},
      {"mul.hi.s32 %r0, -2, 3;", 0xffffffff},
      {"mul.hi.u32 %r0, 4294967295, 4294967295;", 0xfffffffe},
      {"mad.lo.s32 %r0, 7, -3, 5;", 0xfffffff0},
      {"div.s32 %r0, -7, 2;", 0xfffffffd},
      {"rem.s32 %r0, -7, 2;", 0xffffffff},
      {"div.u32 %r0, 4294967289, 2;", 0x7ffffffc},
      {"min.s32 %r0, -1, 1;", 0xffffffff},
      {"max.u32 %r0, 4294967295, 1;", 0xffffffff},
      {"neg.s32 %r0, 5;", 0xfffffffb},
      {"shl.b32 %r0, 1, 31;", 0x80000000},
      {"shl.b32 %r0, 1, 32;", 0},
      {"shr.s32 %r0, -8, 1;", 0xfffffffc},
      {"shr.s32 %r0, -8, 40;", 0xffffffff},
      {"shr.u32 %r0, -8, 1;", 0x7ffffffc},
      {"not.b32 %r0, 5;", 0xfffffffa},
      {"popc.b32 %r0, 1431655765;", 16},
      {"brev.b32 %r0, 3;", 0xc0000000},
      {"bfind.shiftamt.u32 %r0, 65536;", 15},
      {"bfind.shiftamt.u32 %r0, 0;", 0xffffffff},
      {"mul.wide.s32 %l2, -2, 3; shr.u64 %l3, %l2, 32; cvt.u32.u64 %r0, %l3;", 0xffffffff},
      {"mul.wide.u32 %l2, -2, 3; shr.u64 %l3, %l2, 32; cvt.u32.u64 %r0, %l3;", 2},
      {"mov.u16 %h0, 65535; mul.wide.u16 %r0, %h0, 256;", 0xffff00},
      {"mov.u64 %l2, -1; bfi.b64 %l3, 5, %l2, 4, 8; cvt.u32.u64 %r0, %l3;", 0xfffff05f},
      {"mov.u16 %h0, 65535; add.s16 %h1, %h0, 2; cvt.u32.u16 %r0, %h1;", 1},
  });
}

TEST(PtxTest, PredicatesAndBranches) {
  Check({
      {"setp.lt.s32 %p0, -1, 1; selp.b32 %r0, 7, 8, %p0;", 7},
      {"setp.lt.u32 %p0, -1, 1; selp.b32 %r0, 7, 8, %p0;", 8},
      {"setp.ge.s64 %p0, 4, 4; selp.b32 %r0, 7, 8, %p0;", 7},
      {"setp.ne.s16 %p0, 4, 4; selp.b32 %r0, 7, 8, %p0;", 8},
      // A NaN: ordered comparisons are false, the others true.
      {"mov.f32 %f0, 0f7FC00000; setp.ne.f32 %p0, %f0, %f0; selp.b32 %r0, 7, 8, %p0;", 8},
      {"mov.f32 %f0, 0f7FC00000; setp.neu.f32 %p0, %f0, %f0; selp.b32 %r0, 7, 8, %p0;", 7},
      {"mov.f32 %f0, 0f7FC00000; setp.geu.f32 %p0, %f0, 0f3F800000; selp.b32 %r0, 7, 8, %p0;", 7},
      {"mov.pred %p0, 1; mov.pred %p1, 0; xor.pred %p2, %p0, %p1; selp.b32 %r0, 7, 8, %p2;", 7},
      {"mov.pred %p0, -1; not.pred %p1, %p0; or.pred %p2, %p1, %p1; selp.b32 %r0, 7, 8, %p2;", 8},
      {"mov.u32 %r0, 1; mov.pred %p0, 1; @%p0 bra $L; mov.u32 %r0, 2; $L:", 1},
      {"mov.u32 %r0, 1; mov.pred %p0, 1; @!%p0 bra $L; mov.u32 %r0, 2; $L:", 2},
      {"mov.u32 %r0, 0; $L: add.s32 %r0, %r0, 3; setp.lt.s32 %p0, %r0, 30; @%p0 bra $L;", 30},
  });
}

TEST(PtxTest, FloatingPoint) {
  const auto float_case = [](const char* body, float expected) {
    return Case{body, Bits(expected)};
  };
  Check({
      float_case("add.rn.f32 %f0, 0f3F800000, 0f40000000; mov.b32 %r0, %f0;", 3),
      float_case("sub.rn.f32 %f0, 0f3F800000, 0f40000000; mov.b32 %r0, %f0;", -1),
      float_case("div.rn.f32 %f0, 0f3F800000, 0f40400000; mov.b32 %r0, %f0;", 1.0f / 3),
      float_case("sqrt.rn.f32 %f0, 0f40000000; mov.b32 %r0, %f0;", 1.41421356f),
      float_case("rcp.rn.f32 %f0, 0f40800000; mov.b32 %r0, %f0;", 0.25f),
      // 1 + 2^-23 times itself minus one: the product is not rounded.
      float_case("fma.rn.f32 %f0, 0f3F800001, 0f3F800001, 0fBF800000; mov.b32 %r0, %f0;",
                 0x1p-22f + 0x1p-46f),
      // 1 - 2^-26, which is closer to 1.
      float_case("fma.rm.f32 %f0, 0f3F800000, 0f3F800000, 0fB2800000; mov.b32 %r0, %f0;",
                 1 - 0x1p-24f),
      float_case("add.rz.f32 %f0, 0f3F800000, 0fB2800000; mov.b32 %r0, %f0;", 1 - 0x1p-24f),
      float_case("add.rz.f32 %f0, 0fBF800000, 0f32800000; mov.b32 %r0, %f0;", -(1 - 0x1p-24f)),
      float_case("max.f32 %f0, 0f7FC00000, 0f40000000; mov.b32 %r0, %f0;", 2),
      float_case("min.f32 %f0, 0f00000000, 0f80000000; mov.b32 %r0, %f0;", -0.0f),
      float_case("neg.f32 %f0, 0f00000000; mov.b32 %r0, %f0;", -0.0f),
      float_case("abs.f32 %f0, 0fC0000000; mov.b32 %r0, %f0;", 2),
      float_case("copysign.f32 %f0, 0fBF800000, 0f40000000; mov.b32 %r0, %f0;", -2),
      float_case("ex2.approx.f32 %f0, 0f40400000; mov.b32 %r0, %f0;", 8),
      float_case("ex2.approx.f32 %f0, 0fC3100000; mov.b32 %r0, %f0;", 0x1p-144f),
      float_case("ex2.approx.ftz.f32 %f0, 0fC3100000; mov.b32 %r0, %f0;", 0),
  });
}

TEST(PtxTest, Conversions) {
  Check({
      {"cvt.rn.f16.f32 %h0, 0f3F801000; cvt.u32.u16 %r0, %h0;", 0x3c00},  // ties to even
      {"cvt.rn.f16.f32 %h0, 0f3F803000; cvt.u32.u16 %r0, %h0;", 0x3c02},
      {"cvt.rn.bf16.f32 %h0, 0f3F808000; cvt.u32.u16 %r0, %h0;", 0x3f80},
      {"cvt.rn.bf16.f32 %h0, 0f3F818000; cvt.u32.u16 %r0, %h0;", 0x3f82},
      {"mov.u16 %h0, 1; cvt.f32.f16 %f0, %h0; mov.b32 %r0, %f0;", Bits(0x1p-24f)},
      {"cvt.rn.f32.s32 %f0, -16777217; mov.b32 %r0, %f0;", Bits(-16777216)},
      {"cvt.rn.f32.u32 %f0, -1; mov.b32 %r0, %f0;", Bits(0x1p32f)},
      {"cvt.sat.f32.f32 %f0, 0f7FC00000; mov.b32 %r0, %f0;", 0},
      {"cvt.sat.f32.f32 %f0, 0f40000000; mov.b32 %r0, %f0;", Bits(1)},
      {"cvt.rzi.u64.f32 %l2, 0f40700000; cvt.u32.u64 %r0, %l2;", 3},
      {"cvt.rzi.u64.f32 %l2, 0fC0700000; cvt.u32.u64 %r0, %l2;", 0},
      {"mov.b32 %r1, 65535; cvt.u16.u32 %h0, %r1; cvt.s32.s16 %r0, %h0;", 0xffffffff},
      {"cvt.s64.s32 %l2, -1; shr.u64 %l3, %l2, 32; cvt.u32.u64 %r0, %l3;", 0xffffffff},
      {"cvt.f64.f32 %d0, 0f3FC00000; cvt.rpi.f64.f64 %d1, %d0; cvt.rzi.u64.f64 %l2, %d1; "
       "cvt.u32.u64 %r0, %l2;",
       2},
      {"mov.u16 %h0, 1; mov.u16 %h1, 2; mov.b32 %r0, {%h0, %h1};", 0x00020001},
      {"mov.b32 %r1, 131073; mov.b32 {%h0, %h1}, %r1; cvt.u32.u16 %r0, %h1;", 2},
      {"mov.b64 %l2, {1, 2}; mov.b64 {%r1, %r0}, %l2;", 2},
  });
}

TEST(PtxTest, MemoryOfEveryKind) {
  Check({
      {"mov.u32 %r1, 258; st.shared.u32 [tile+4], %r1; ld.shared.u8 %h0, [tile+5]; "
       "cvt.u32.u16 %r0, %h0;",
       1},
      {"st.shared.u16 [dynamic+2], 65535; ld.shared.s16 %r0, [dynamic+2];", 0xffffffff},
      {"ld.shared.u32 %r0, [tile+64];", 0xffffffff},  // never written
      {"mov.u64 %l2, tile; cvta.shared.u64 %l3, %l2; mov.u32 %r1, 77; st.u32 [%l3+8], %r1; "
       "ld.shared.u32 %r0, [tile+8];",
       77},
      {"st.global.v2.u32 [%o], {5, 6}; ld.global.v2.u32 {%r1, %r2}, [%o]; add.s32 %r0, %r1, %r2;",
       11},
      {"ld.param.v2.u32 {%r1, %r2}, [Test_param_0]; cvt.u32.u64 %r3, %l0; sub.s32 %r0, %r1, %r3;",
       0},
  });
  const auto sums = RunBody(
      "mov.u32 %r1, 0; st.shared.u32 [tile], %r1; bar.sync 0; "
      "atom.shared.add.u32 %r0, [tile], 2; bar.sync 0; "
      "ld.shared.u32 %r2, [tile]; add.s32 %r0, %r0, %r2; st.global.u32 [%o], %r0;",
      64);
  for (size_t t = 0; t < sums.size(); ++t) EXPECT_EQ(sums[t], 128 + 2 * t);
}

TEST(PtxTest, LanesExchangeValues) {
  const auto xored = RunBody(
      "shfl.sync.bfly.b32 %r0|%p0, %t, 3, 31, -1; selp.b32 %r1, %r0, 99, %p0; "
      "st.global.u32 [%o], %r1;");
  const auto first_of_eight =
      RunBody("shfl.sync.idx.b32 %r0, %t, 0, 6175, -1; st.global.u32 [%o], %r0;");
  const auto above = RunBody(
      "shfl.sync.down.b32 %r0|%p0, %t, 1, 31, -1; selp.b32 %r1, %r0, 99, %p0; "
      "st.global.u32 [%o], %r1;");
  const auto votes = RunBody(
      "and.b32 %r0, %t, 1; setp.eq.s32 %p0, %r0, 1; vote.sync.ballot.b32 %r1, %p0, -1; "
      "st.global.u32 [%o], %r1;");
  for (uint64_t l = 0; l < 32; ++l) {
    EXPECT_EQ(xored[l], l ^ 3);
    EXPECT_EQ(first_of_eight[l], l / 8 * 8);
    EXPECT_EQ(above[l], l == 31 ? 99 : l + 1);
    EXPECT_EQ(votes[l], 0xaaaaaaaa);
  }
}

// Lanes take three paths of different lengths and reconverge.
TEST(PtxTest, LanesThatPartMeetAgain) {
  const std::string body =
      "mov.u32 %r0, 0; setp.lt.s32 %p0, %t, 5; @%p0 bra $A; setp.lt.s32 %p1, %t, 9; @%p1 bra $B; "
      "add.s32 %r0, %t, 100; bra.uni $END; $A: add.s32 %r0, %r0, 1; setp.lt.s32 %p2, %r0, %t; "
      "@%p2 bra $A; bra.uni $END; $B: mov.u32 %r0, 50; $END: bar.warp.sync -1; "
      "shfl.sync.idx.b32 %r1, %r0, 31, 31, -1; add.s32 %r2, %r0, %r1; st.global.u32 [%o], %r2;";
  ForEachSchedule([&] {
    const auto out = RunBody(body, 64);
    for (uint64_t t = 0; t < 64; ++t) {
      const uint64_t own = t == 0 ? 1 : t < 5 ? t : t < 9 ? 50 : t + 100;
      EXPECT_EQ(out[t], own + (t < 32 ? 131 : 163)) << t;
    }
  });
}

TEST(PtxTest, CopiesArriveWhenTheyAreWaitedFor) {
  const std::string copy =
      "mov.u32 %r1, tile; mul.lo.s32 %r2, %t, 16; add.s32 %r1, %r1, %r2; st.global.u64 [%o], 7; "
      "setp.ne.s32 %p0, %t, 0; @%p0 bra $END; cp.async.cg.shared.global [%r1], [%l0], 16; "
      "cp.async.commit_group; ";
  const std::string after = "cp.async.wait_group 0; $END: ";
  const std::string read = "ld.shared.u32 %r3, [tile]; st.global.u32 [%l0+8], %r3; ";
  EXPECT_EQ(RunBody(copy + read + after, 2)[1], 0xffffffff);
  EXPECT_EQ(RunBody(copy + "cp.async.wait_group 1; " + read + after, 2)[1], 0xffffffff);
  EXPECT_EQ(RunBody(copy + "cp.async.wait_group 0; " + read + after, 2)[1], 7u);
}

// ---- what is wrong ----------------------------------------------------------------------------

void Dies(const std::string& body, const std::string& message, unsigned threads = 32) {
  EXPECT_DEATH(RunBody(body, threads), message) << body;
}

TEST(PtxDeathTest, UnknownTextNamesKernelAndLine) {
  const auto parse = [](const std::string& body) { simt::ptx::ParseModule(Module(body), "a.ptx"); };
  EXPECT_DEATH(
      parse("\tfrobnicate.f32 %f0, %f1;"),
      "a.ptx:24: unknown instruction frobnicate.f32\n *frobnicate.f32 %f0, %f1\n *in Test");
  EXPECT_DEATH(parse("\tadd.rn.ftz.f32 %f0, %f1, %f2;"), "unknown instruction add.rn.ftz.f32");
  EXPECT_DEATH(parse("\tadd.s32 %r0, %r1;"), "unknown operands of add.s32");
  EXPECT_DEATH(parse("\tadd.s32 %r0, %r1, %l2;"), "unknown operands of add.s32");
  EXPECT_DEATH(parse("\tadd.s32 5, %r1, %r2;"), "unknown operands of add.s32");
  EXPECT_DEATH(parse("\tld.global.u32 %r0, [%r1];"), "unknown operands of ld.global.u32");
  EXPECT_DEATH(parse("\tadd.s32 %r0, %r1, %x2;"), "unknown operand %x2");
  EXPECT_DEATH(parse("\tmov.u32 %r0, %clock;"), "unknown operand %clock");
  EXPECT_DEATH(parse("\tbra $NOWHERE;"), "a.ptx:24: unknown label .NOWHERE");
  EXPECT_DEATH(parse("\t.local .align 4 .b8 depot[8];"), "unknown directive");
  EXPECT_DEATH(simt::ptx::ParseModule(".version 9.0\n.global .u32 x;\n", "a.ptx"),
               "a.ptx:2: unknown directive");
}

TEST(PtxDeathTest, AccessesOutsideOrMisaligned) {
  Dies("\tst.global.u64 [%o+8], 1;",
       "test.ptx:24: .*thread 31: access outside every device buffer");
  Dies("\tst.global.u32 [%o+2], 1;", "misaligned address");
  Dies("\tld.shared.u32 %r0, [tile+1024];", "access outside shared memory, at 1024");
  Dies("\tld.shared.v2.u32 {%r0, %r1}, [tile+4];", "misaligned address");
  Dies("\tld.param.u64 %l2, [Test_param_0+8];", "access outside the parameters");
  Dies("\tmov.u64 %l2, 64; ld.u32 %r0, [%l2];", "access outside every device buffer");
  Dies("\tmov.u32 %r1, 8; cp.async.cg.shared.global [%r1], [%l0], 16;", "misaligned address");
  Dies("\tmov.u32 %r1, 0; cp.async.cg.shared.global [%r1], [%l0], 16, 17;",
       "source longer than its destination");
}

TEST(PtxDeathTest, CopiesUnderWayAtTheEnd) {
  Dies("\tmov.u32 %r1, 0; cp.async.cg.shared.global [%r1], [%l0], 16; cp.async.commit_group;",
       "thread 0: exit with copies under way");
  Dies("\tmov.u32 %r1, 0; cp.async.cg.shared.global [%r1], [%l0], 16; cp.async.wait_group 0;",
       "exit with copies under way");
}

TEST(PtxDeathTest, ThreadsThatDoNotCome) {
  Dies(
      "\tsetp.lt.s32 %p0, %t, 16; @%p0 bra $L; bar.sync 0; $L: setp.lt.s32 %p1, %t, 16; "
      "@!%p1 bra $END; $AGAIN: bar.warp.sync -1; $END: bar.sync 1;",
      "deadlock in block \\(0,0,0\\) of Test\n *16 threads from thread ");
  Dies("\tbar.sync 0, 96;",
       "deadlock.*\n *32 threads from thread 0 wait at line 24: bar.sync 0, 96", 64);
  Dies("\tshfl.sync.bfly.b32 %r0, %t, 1, 31, 1;", "the mask does not name the lanes that are here");
  Dies("\tsetp.lt.s32 %p0, %t, 16; @%p0 bra $END; shfl.sync.idx.b32 %r0, %t, 0, 31, -65536; $END:",
       "shuffle from a lane that does not take part");
  Dies("\tsetp.lt.s32 %p0, %t, 16; @%p0 bar.sync 0;", "only some of the threads come");
  Dies("\tbar.sync 16;", "no barrier 16");
}

TEST(PtxDeathTest, MatricesNeedTheWholeWarp) {
  const std::string mma =
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, "
      "{%r4,%r5}, {%f0,%f1,%f2,%f3};";
  Dies("\t" + mma, "needs all 32 lanes", 16);
  Dies("\tmov.u32 %r9, 8; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0,%r1,%r2,%r3}, [%r9];",
       "misaligned address");
}

// Compares a kernel that stored 1.0 with one that stores x.
void CompareWith(float x, const std::string& body) {
  const auto kernels = simt::ptx::ParseModule(Module(body), "test.ptx");
  DeviceArray<float> out(std::vector<float>(4, 1));
  const simt::ptx::Contents before = {
      {reinterpret_cast<char*>(out.data()), std::vector<char>(4 * sizeof(float), 0)}};
  simt::ptx::Compare(*kernels[0], before, [&] {
    EXPECT_EQ(out[0], 0) << "it begins with what was there";
    for (size_t i = 0; i < 4; ++i) out[i] = i == 2 ? x : 1;
  });
}

TEST(PtxDeathTest, ResultsOfTwoCompilationsThatDiffer) {
  const std::string exact = "add.f32 %f0, %f0, %f0;", approximate = "ex2.approx.f32 %f0, %f0;";
  CompareWith(1, exact);
  CompareWith(1.00001f, approximate);
  EXPECT_DEATH(CompareWith(1.00001f, exact),
               "results differ in byte 8 of a buffer of 16: 0x3f800000");
  EXPECT_DEATH(CompareWith(1.1f, approximate), "results differ in byte 8");
  EXPECT_DEATH(CompareWith(0, approximate), "results differ in byte 8");
}

TEST(PtxDeathTest, MoreThreadsThanTheBounds) {
  EXPECT_DEATH(RunModule(Module("", ".maxntid 32, 1, 1\n"), 64),
               "64 threads, its launch bounds allow 32");
}

}  // namespace
}  // namespace kuiper::simt_test
