// The counts of the PTX interpreter: accesses whose sectors and wavefronts follow from the
// addresses by the rules of the CUDA guides, and instructions of every kind.
#include "emulator/ptx_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "emulator/ptx_program.h"
#include "emulator/ptx_run.h"
#include "test/simt/device_array.h"

namespace kuiper::simt_test {
namespace {

using simt::ptx::Traffic;
using simt::ptx::Usage;
using simt::ptx::Work;

// A kernel of one warp. Lane t has the address begin + (t / every) * stride in %g, in a buffer of
// 64 KB, and in %s, in shared memory. %p1 is t < 8; %q1 is true if t is even.
std::string Module(int begin, int stride, int every, const std::string& body) {
  return R"(
.version 9.0
.target sm_87
.address_size 64
.visible .entry Test(
	.param .u64 Test_param_0
)
{
	.reg .pred 	%p<9>;
	.reg .pred 	%q<9>;
	.reg .b32 	%r<40>;
	.reg .f32 	%f<9>;
	.reg .b64 	%l<9>;
	.reg .b64 	%g;
	.reg .b32 	%s;
	.reg .b32 	%t;
	.shared .align 16 .b8 tile[32768];
	ld.param.u64 	%l0, [Test_param_0];
	cvta.to.global.u64 	%l0, %l0;
	mov.u32 	%t, %tid.x;
	setp.lt.u32 	%p1, %t, 8;
	and.b32 	%r1, %t, 1;
	setp.eq.u32 	%q1, %r1, 0;
	div.u32 	%r1, %t, )" +
         std::to_string(every) + ";\n\tmul.lo.u32 	%r1, %r1, " + std::to_string(stride) +
         ";\n\tadd.u32 	%r1, %r1, " + std::to_string(begin) + R"(;
	mov.u32 	%r2, tile;
	add.u32 	%s, %r1, %r2;
	cvt.u64.u32 	%l1, %r1;
	add.s64 	%g, %l0, %l1;
)" + body +
         "\n\tret;\n}\n";
}

Usage Counted(const std::string& text) {
  const auto kernels = simt::ptx::ParseModule(text, "test.ptx");
  EXPECT_EQ(kernels.size(), 1u);
  DeviceArray<char> buffer(size_t{64} * 1024);
  const char* const parameter = buffer.data();
  Usage usage;
  usage.counts_traffic = true;
  simt::ptx::Run(*kernels[0], {{1, 1, 1}, {32, 1, 1}, 512},
                 reinterpret_cast<const char*>(&parameter), &usage);
  return usage;
}

Traffic TrafficOf(const std::string& text) {
  Traffic sum;
  for (const Traffic& t : Counted(text).traffic) sum.Add(t);
  return sum;
}

struct Case {
  const char* what;
  int begin, stride, every;
  const char* body;
  uint64_t requests, bytes, pieces, ideal;  // pieces: sectors, or wavefronts
};

constexpr const char* kLoad = "ld.global.u32 %r0, [%g];";
constexpr const char* kShared = "ld.shared.u32 %r0, [%s];";
constexpr const char* kShared2 = "ld.shared.v2.u32 {%r3, %r4}, [%s];";
constexpr const char* kShared4 = "ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%s];";
constexpr const char* kMatrix =
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%s];";
constexpr const char* kCopy =
    "cp.async.cg.shared.global [%s], [%g], 16;\ncp.async.commit_group;\ncp.async.wait_group 0;";

TEST(PtxTrafficTest, SectorsOfGlobalMemory) {
  const Case cases[] = {
      {"coalesced", 0, 4, 1, kLoad, 1, 128, 4, 0},
      {"every second word", 0, 8, 1, kLoad, 1, 128, 8, 0},
      {"every 32nd word", 0, 128, 1, kLoad, 1, 128, 32, 0},
      {"misaligned by a word", 4, 4, 1, kLoad, 1, 128, 5, 0},
      {"one word for all", 0, 4, 32, kLoad, 1, 128, 1, 0},
      {"one sector backwards", 124, -4, 1, kLoad, 1, 128, 4, 0},
      {"two words for all in turns", 0, 4096, 16, kLoad, 1, 128, 2, 0},
      {"bytes", 0, 1, 1, "ld.global.u8 %r0, [%g];", 1, 32, 1, 0},
      {"8 bytes a lane", 0, 8, 1, "ld.global.v2.u32 {%r3, %r4}, [%g];", 1, 256, 8, 0},
      {"16 bytes a lane", 0, 16, 1, "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%g];", 1, 512, 16, 0},
      {"16 of every 32 bytes", 0, 32, 1, "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%g];", 1, 512, 32,
       0},
      {"a store", 4, 4, 1, "st.global.u32 [%g], %r1;", 1, 128, 5, 0},
      {"an atomic of one word", 0, 0, 1, "atom.global.add.u32 %r0, [%g], 1;", 1, 128, 1, 0},
      {"8 lanes", 0, 4, 1, "@%p1 ld.global.u32 %r0, [%g];", 1, 32, 1, 0},
      {"24 lanes", 0, 4, 1, "@!%p1 ld.global.u32 %r0, [%g];", 1, 96, 3, 0},
      {"no lane", 0, 4, 1, "setp.ne.u32 %p2, 0, 0;\n@%p2 ld.global.u32 %r0, [%g];", 0, 0, 0, 0},
      {"two halves of a warp that part", 0, 4, 1,
       "@%p1 bra $L1;\nld.global.u32 %r0, [%g];\nbra $L2;\n$L1:\nld.global.u32 %r0, [%g];\n$L2:", 2,
       128, 4, 0},
      {"an address of any memory", 4, 4, 1, "ld.u32 %r0, [%g];", 1, 128, 5, 0},
      {"a copy", 0, 16, 1, kCopy, 1, 512, 16, 0},
      {"a copy or zeros", 0, 16, 1,
       "selp.b32 %r7, 16, 0, %p1;\ncp.async.cg.shared.global [%s], [%g], 16, %r7;\n"
       "cp.async.commit_group;\ncp.async.wait_group 0;",
       1, 128, 4, 0},
      {"shared memory only", 0, 4, 1, kShared, 0, 0, 0, 0},
  };
  for (const Case& c : cases) {
    const Traffic t = TrafficOf(Module(c.begin, c.stride, c.every, c.body));
    EXPECT_EQ(t.global_requests, c.requests) << c.what;
    EXPECT_EQ(t.global_bytes, c.bytes) << c.what;
    EXPECT_EQ(t.sectors, c.pieces) << c.what;
  }
}

TEST(PtxTrafficTest, WavefrontsOfSharedMemory) {
  const Case cases[] = {
      {"a word a bank", 0, 4, 1, kShared, 1, 128, 1, 1},
      {"one word for all", 0, 4, 32, kShared, 1, 128, 1, 1},
      {"2-way", 0, 8, 1, kShared, 1, 128, 2, 1},
      {"an odd stride", 0, 12, 1, kShared, 1, 128, 1, 1},
      {"8-way", 0, 32, 1, kShared, 1, 128, 8, 1},
      {"32-way", 0, 128, 1, kShared, 1, 128, 32, 1},
      {"32-way but each word for two", 0, 128, 2, kShared, 1, 128, 16, 1},
      {"a row and a pad", 0, 132, 1, kShared, 1, 128, 1, 1},
      {"halves of words", 0, 2, 1, "ld.shared.u16 %r0, [%s];", 1, 64, 1, 1},
      {"halves of words 2-way", 0, 6, 1, "st.shared.b16 [%s], %r1;", 1, 64, 2, 1},
      {"a store 8-way", 0, 32, 1, "st.shared.u32 [%s], %r1;", 1, 128, 8, 1},
      {"an atomic 2-way", 0, 8, 1, "atom.shared.add.u32 %r0, [%s], 1;", 1, 128, 2, 1},
      {"8 bytes a lane", 0, 8, 1, kShared2, 1, 256, 2, 2},
      {"8 bytes a lane 2-way", 0, 16, 1, kShared2, 1, 256, 4, 2},
      {"16 bytes a lane", 0, 16, 1, kShared4, 1, 512, 4, 4},
      {"16 bytes a lane 2-way", 0, 32, 1, kShared4, 1, 512, 8, 4},
      {"16 bytes a lane 8-way", 0, 128, 1, kShared4, 1, 512, 32, 4},
      {"16 bytes a lane with a pad", 0, 144, 1, kShared4, 1, 512, 4, 4},
      {"16 bytes for all", 0, 16, 32, kShared4, 1, 512, 4, 4},
      {"rows side by side", 0, 16, 1, kMatrix, 1, 512, 4, 4},
      {"rows 128 bytes apart", 0, 128, 1, kMatrix, 1, 512, 32, 4},
      {"rows 64 bytes apart", 0, 64, 1, kMatrix, 1, 512, 16, 4},
      {"rows with a pad", 0, 144, 1, kMatrix, 1, 512, 4, 4},
      {"a copy", 0, 16, 1, kCopy, 1, 512, 4, 4},
      {"a copy 4-way", 0, 64, 1, kCopy, 1, 512, 16, 4},
      {"8 lanes of a 32-way", 0, 128, 1, "@%p1 ld.shared.u32 %r0, [%s];", 1, 32, 8, 1},
      {"8 lanes of 16 bytes", 0, 16, 1, "@%p1 ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%s];", 1, 128,
       1, 1},
      {"every second lane", 0, 4, 1, "@%q1 ld.shared.u32 %r0, [%s];", 1, 64, 1, 1},
      {"every second lane 2-way", 0, 8, 1, "@%q1 ld.shared.u32 %r0, [%s];", 1, 64, 2, 1},
      {"every second lane 4-way", 0, 16, 1, "@%q1 ld.shared.u32 %r0, [%s];", 1, 64, 4, 1},
      {"no lane", 0, 4, 1, "setp.ne.u32 %p2, 0, 0;\n@%p2 ld.shared.u32 %r0, [%s];", 0, 0, 0, 0},
      {"an address of any memory 2-way", 0, 8, 1,
       "cvt.u64.u32 %l2, %s;\ncvta.shared.u64 %l2, %l2;\nst.u32 [%l2], %r1;", 1, 128, 2, 1},
      {"global memory only", 0, 4, 1, kLoad, 0, 0, 0, 0},
  };
  for (const Case& c : cases) {
    const Traffic t = TrafficOf(Module(c.begin, c.stride, c.every, c.body));
    EXPECT_EQ(t.shared_requests, c.requests) << c.what;
    EXPECT_EQ(t.shared_bytes, c.bytes) << c.what;
    EXPECT_EQ(t.wavefronts, c.pieces) << c.what;
    EXPECT_EQ(t.ideal_wavefronts, c.ideal) << c.what;
  }
}

TEST(PtxTrafficTest, AddressesOfAnyMemoryAreCountedWhereTheyPoint) {
  // 8 lanes in shared memory, 24 in global memory.
  const Traffic t = TrafficOf(Module(0, 4, 1, R"(
	cvt.u64.u32 %l2, %s;
	cvta.shared.u64 %l2, %l2;
	selp.b64 %l3, %l2, %g, %p1;
	ld.u32 %r0, [%l3];)"));
  EXPECT_EQ(t.shared_requests, 1u);
  EXPECT_EQ(t.shared_bytes, 32u);
  EXPECT_EQ(t.wavefronts, 1u);
  EXPECT_EQ(t.global_requests, 1u);
  EXPECT_EQ(t.global_bytes, 96u);
  EXPECT_EQ(t.sectors, 3u);
}

TEST(PtxTrafficTest, CopiesUnderWayAreThoseBeforeAWait) {
  const std::string copy = "cp.async.cg.shared.global [%s], [%g], 16;\n";
  const std::string commit = "cp.async.commit_group;\n", wait = "cp.async.wait_group ";
  const auto under_way = [](const std::string& body) {
    return TrafficOf(Module(0, 16, 1, body)).copies_under_way;
  };
  EXPECT_EQ(under_way(copy + copy + commit + wait + "0;"), 32u);
  EXPECT_EQ(under_way(copy + commit + copy + copy + commit + wait + "1;\n" + wait + "0;"), 48u);
  EXPECT_EQ(under_way(copy + commit + wait + "0;\n" + copy + commit + wait + "0;"), 16u);
  EXPECT_EQ(under_way("@%p1 " + copy + commit + wait + "0;"), 16u);
  EXPECT_EQ(under_way(kLoad), 0u);
}

TEST(PtxTrafficTest, NothingIsCountedUnasked) {
  const auto kernels = simt::ptx::ParseModule(Module(0, 4, 1, kLoad), "test.ptx");
  DeviceArray<char> buffer(size_t{64} * 1024);
  const char* const parameter = buffer.data();
  Usage usage;
  simt::ptx::Run(*kernels[0], {{1, 1, 1}, {32, 1, 1}, 0}, reinterpret_cast<const char*>(&parameter),
                 &usage);
  EXPECT_TRUE(usage.traffic.empty());
}

TEST(PtxTrafficTest, InstructionsHaveKinds) {
  const std::pair<const char*, Work> cases[] = {
      {"add.s32 \t%r1, %r2, 1", Work::kInteger},
      {"setp.lt.u64 %p1, %l1, %l2", Work::kInteger},
      {"and.pred %p1, %p2, %p3", Work::kInteger},
      {"fma.rn.f32 %f1, %f2, %f3, %f4", Work::kFloat},
      {"setp.gt.f32 %p1, %f1, %f2", Work::kFloat},
      {"ex2.approx.ftz.f32 %f1, %f2", Work::kFloat},
      {"cvt.rn.f16.f32 %h1, %f1", Work::kConvert},
      {"mov.b32 %r1, %f1", Work::kMove},
      {"selp.f32 %f1, %f2, %f3, %p1", Work::kMove},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}", Work::kTensor},
      {"shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1", Work::kShuffle},
      {"ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r1}, [%l1]", Work::kGlobalLoad},
      {"@%p1 st.global.b16 [%l1], %h1", Work::kGlobalStore},
      {"ld.shared.f32 %f1, [%r1]", Work::kSharedLoad},
      {"@!%p1 st.shared.v4.b32 [%r1], {%r1}", Work::kSharedStore},
      {"ld.u32 %r1, [%l1]", Work::kGenericLoad},
      {"st.v4.b32 [%l1], {%r1}", Work::kGenericStore},
      {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1}, [%r2]", Work::kMatrixLoad},
      {"cp.async.cg.shared.global [%r1], [%l1], 16", Work::kAsyncCopy},
      {"cp.async.wait_group 1", Work::kBarrier},
      {"bar.sync 0", Work::kBarrier},
      {"bar.warp.sync -1", Work::kBarrier},
      {"membar.gl", Work::kBarrier},
      {"atom.global.add.u32 %r1, [%l1], 1", Work::kAtomic},
      {"ld.param.u64 %l1, [Test_param_0]", Work::kParameterLoad},
      {"@%p1 bra $L1", Work::kBranch},
      {"ret", Work::kBranch},
  };
  for (const auto& [text, kind] : cases) EXPECT_EQ(simt::ptx::WorkOf(text), kind) << text;
  EXPECT_DEATH(simt::ptx::WorkOf("wgmma.mma_async %r1"), "an instruction of no kind: wgmma");
}

TEST(PtxTrafficTest, EveryOpcodeOfTheInterpreterHasAKind) {
  simt::ptx::FormTable table;
  simt::ptx::AddArithmetic(table);
  simt::ptx::AddConversions(table);
  simt::ptx::AddMemory(table);
  simt::ptx::AddWarpOperations(table);
  EXPECT_GT(table.size(), 100u);
  for (const auto& [opcode, forms] : table) simt::ptx::WorkOf(opcode);  // dies without one
}

TEST(PtxTrafficTest, TheReportHasAColumnForEachNumber) {
  const auto kernels = simt::ptx::ParseModule(Module(0, 128, 1, kShared), "test.ptx");
  const std::string line =
      simt::ptx::ReportLine("Test", *kernels[0], Counted(Module(0, 128, 1, kShared)));
  const auto fields = [](const std::string& s) { return std::count(s.begin(), s.end(), '\t') + 1; };
  EXPECT_EQ(fields(line), fields(simt::ptx::ReportHeader()));
  // Requests, bytes and sectors of global memory; then of shared memory with its wavefronts.
  EXPECT_NE(line.find("\t0\t0\t0\t1\t128\t32\t1\t0\ttest.ptx:"), std::string::npos) << line;
  EXPECT_EQ(line.rfind("Test\t1\t1\t15\t15\t16\t512\t", 0), 0u) << line;
}

}  // namespace
}  // namespace kuiper::simt_test
