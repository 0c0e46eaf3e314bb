#include "emulator/ptx_run.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "emulator/ptx_context.h"

namespace kuiper::simt::ptx {
namespace {

constexpr uint32_t kNumBarriers = 16;

class Runner {
 public:
  // `storage` is memory that launches reuse.
  Runner(const Kernel& kernel, const LaunchShape& shape, const char* parameters,
         std::vector<Warp>& storage, Usage* usage, Contents* before)
      : k_(kernel), shape_(shape), usage_(*usage) {
    threads_ = shape.block.x * shape.block.y * shape.block.z;
    if (threads_ > k_.max_threads)
      Die(k_.name + ": " + std::to_string(threads_) + " threads, its launch bounds allow " +
          std::to_string(k_.max_threads));
    if (k_.shared_bytes + shape.shared_bytes > shape.shared_limit)
      Die(k_.name + ": out of shared memory: " + std::to_string(k_.shared_bytes) +
          " bytes of variables, " + std::to_string(shape.shared_bytes) + " dynamic");
    shared_.resize(k_.shared_bytes + shape.shared_bytes);
    c_.kernel = &k_;
    c_.shape = &shape_;
    c_.parameters = parameters;
    c_.shared = &shared_;
    c_.before = before;
    c_.rng.seed(CurrentOptions().seed);
    c_.ranges.resize(k_.code.size());
    const size_t num_warps = (threads_ + kLanes - 1) / kLanes;
    if (storage.size() < num_warps) storage.resize(num_warps);
    warps_ = std::span(storage).first(num_warps);
    for (size_t n = 0; n < warps_.size(); ++n) PrepareWarp(n);
    usage_.executed.resize(k_.code.size());
    if (usage_.counts_traffic) {
      usage_.traffic.resize(k_.code.size());
      c_.traffic = usage_.traffic.data();
    }
  }

  void RunAll() {
    const uint32_t x = shape_.grid.x, y = shape_.grid.y;
    for (const uint32_t b : Order(x * y * shape_.grid.z)) {
      c_.block[0] = b % x;
      c_.block[1] = b / x % y;
      c_.block[2] = b / x / y;
      RunBlock();
    }
    ++usage_.launches;
    usage_.dynamic_shared = std::max(usage_.dynamic_shared, shape_.shared_bytes);
  }

 private:
  // Returns 0 .. n-1 in the order of the schedule.
  std::vector<uint32_t> Order(uint32_t n) {
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    const Schedule schedule = CurrentOptions().schedule;
    if (schedule == Schedule::kReversed) std::reverse(order.begin(), order.end());
    if (schedule == Schedule::kShuffled) std::shuffle(order.begin(), order.end(), c_.rng);
    return order;
  }

  void PrepareWarp(size_t n) {
    Warp& w = warps_[n];
    w.first_thread = static_cast<uint32_t>(n) * kLanes;
    w.registers.assign(k_.register_bytes, static_cast<char>(0xff));
    for (const Constant& constant : k_.constants) {
      char* const to = w.registers.data() + constant.reg;
      if (constant.bytes == 8) {
        std::fill_n(reinterpret_cast<uint64_t*>(to), kLanes, constant.value);
      } else {
        std::fill_n(reinterpret_cast<uint32_t*>(to), kLanes, static_cast<uint32_t>(constant.value));
      }
    }
  }

  void BeginBlock() {
    std::fill(shared_.begin(), shared_.end(), static_cast<char>(0xff));
    std::fill_n(arrived_, kNumBarriers, 0);
    alive_ = threads_;
    ++usage_.blocks;
    for (Warp& w : warps_) {
      const uint32_t lanes = std::min<uint32_t>(kLanes, threads_ - w.first_thread);
      w.alive = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
      w.copies.clear();
      w.groups.assign(1, {0, w.alive, Group::kReady, 0});
      std::fill_n(w.committed, kLanes, 0);
      for (const Special& special : k_.specials) {
        auto* const to = reinterpret_cast<uint32_t*>(w.registers.data() + special.reg);
        for (uint32_t l = 0; l < kLanes; ++l) to[l] = ValueOf(special, w.first_thread + l);
      }
    }
  }

  uint32_t ValueOf(const Special& special, uint32_t thread) const {
    const auto axis = [&](const dialect::dim3& d) {
      return special.axis == 0 ? d.x : special.axis == 1 ? d.y : d.z;
    };
    const dialect::dim3& b = shape_.block;
    switch (special.name) {
      case Special::kTid:
        return axis({thread % b.x, thread / b.x % b.y, thread / (b.x * b.y)});
      case Special::kNtid:
        return axis(b);
      case Special::kCtaid:
        return c_.block[special.axis];
      case Special::kNctaid:
        return axis(shape_.grid);
      case Special::kLaneid:
        return thread % kLanes;
      case Special::kWarpid:
        break;
    }
    return thread / kLanes;
  }

  void RunBlock() {
    BeginBlock();
    for (bool done = false; !done;) {
      bool progress = false;
      done = true;
      for (const uint32_t n : Order(static_cast<uint32_t>(warps_.size()))) {
        progress |= RunWarp(warps_[n]);
        done &= warps_[n].alive == 0;
      }
      progress |= ReleaseBarriers();
      if (!done && !progress) ReportDeadlock();
    }
  }

  // Releases groups at barriers that all expected threads have reached; returns whether there were
  // any.
  bool ReleaseBarriers() {
    bool any = false;
    for (uint32_t id = 0; id < kNumBarriers; ++id) {
      if (arrived_[id] == 0 || arrived_[id] < (expected_[id] == 0 ? alive_ : expected_[id]))
        continue;
      arrived_[id] = 0;
      any = true;
      for (Warp& w : warps_)
        for (Group& g : w.groups)
          if (g.state == Group::kAtBarrier && g.barrier == id) {
            g.state = Group::kReady;
            ++g.pc;
          }
    }
    return any;
  }

  [[noreturn]] void ReportDeadlock() {
    std::string where;
    for (Warp& w : warps_)
      for (const Group& g : w.groups)
        where += "\n  " + std::to_string(std::popcount(g.mask)) + " threads from thread " +
                 std::to_string(w.first_thread + static_cast<uint32_t>(std::countr_zero(g.mask))) +
                 " wait at line " + std::to_string(k_.code[g.pc].line) + ": " + k_.text[g.pc];
    Die(k_.file + ": deadlock in block (" + std::to_string(c_.block[0]) + "," +
        std::to_string(c_.block[1]) + "," + std::to_string(c_.block[2]) + ") of " + k_.name +
        where);
  }

  // Merges groups at the same instruction, except those that wait at a barrier.
  static void Merge(std::vector<Group>& groups) {
    for (size_t a = 0; a < groups.size(); ++a) {
      for (size_t b = groups.size(); b-- > a + 1;) {
        if (groups[a].pc != groups[b].pc || groups[a].state == Group::kAtBarrier ||
            groups[b].state == Group::kAtBarrier)
          continue;
        groups[a].mask |= groups[b].mask;
        groups[a].state = Group::kReady;
        groups.erase(groups.begin() + static_cast<ptrdiff_t>(b));
      }
    }
  }

  // Runs the warp as far as possible; returns whether it made progress.
  bool RunWarp(Warp& w) {
    bool progress = false;
    c_.warp = &w;
    c_.registers = w.registers.data();
    std::vector<Group>& groups = w.groups;
    for (;;) {
      if (groups.size() > 1) Merge(groups);
      size_t first = groups.size();
      for (size_t n = 0; n < groups.size(); ++n)
        if (groups[n].state == Group::kReady &&
            (first == groups.size() || groups[n].pc < groups[first].pc))
          first = n;
      if (first == groups.size()) return progress;
      uint32_t stop = ~0u;  // instruction of the next group
      for (const Group& g : groups)
        if (g.state != Group::kAtBarrier && g.pc > groups[first].pc) stop = std::min(stop, g.pc);
      progress |= RunGroup(w, first, stop);
    }
  }

  // Runs one group until it diverges, waits, exits, reaches `stop`, or branches back while another
  // group is ahead. Returns whether an instruction ran.
  bool RunGroup(Warp& w, size_t index, uint32_t stop) {
    Group g = w.groups[index];
    const uint64_t before = usage_.warp_instructions;
    for (bool more = true; more && g.pc < stop;) {
      const Instruction& i = k_.code[g.pc];
      uint32_t mask = g.mask;
      if (i.guarded) {
        const uint32_t p = *c_.At<uint32_t>(i.guard);
        mask &= i.negated ? ~p : p;
      }
      c_.mask = mask;
      if (i.kind == Kind::kPlain || (mask == 0 && i.kind != Kind::kBranch)) {
        Count(g.pc++);
        if (mask != 0) i.run(c_, i);
      } else if (i.kind == Kind::kBranch) {
        more = Branch(w, i, mask, stop, &g);
      } else if (i.kind == Kind::kWarp) {
        more = Meet(w, i, mask, &g);
      } else if (i.kind == Kind::kBarrier) {
        Arrive(i, mask, &g);
        more = false;
      } else {
        Exit(w, i, mask, &g);
        more = false;
      }
    }
    w.groups[index] = g;
    if (g.mask == 0) w.groups.erase(w.groups.begin() + static_cast<ptrdiff_t>(index));
    return usage_.warp_instructions != before;
  }

  void Count(uint32_t pc) {
    ++usage_.warp_instructions;
    ++usage_.executed[pc];
  }

  bool Branch(Warp& w, const Instruction& i, uint32_t taken, uint32_t stop, Group* g) {
    Count(g->pc);
    if (taken == g->mask) {
      const bool goes_back = i.target <= g->pc;
      g->pc = i.target;
      return !goes_back || stop == ~0u;
    }
    ++g->pc;
    if (taken == 0) return true;
    w.groups.push_back({i.target, taken, Group::kReady, 0});
    g->mask &= ~taken;
    return false;
  }

  // Runs an operation of several lanes if all lanes that it names have arrived; otherwise the group
  // waits. Returns whether it ran.
  bool Meet(const Warp& w, const Instruction& i, uint32_t mask, Group* g) {
    if (mask != g->mask) Fail(c_, i, "only some of the lanes take part");
    uint32_t needed = kAllLanes;
    if (i.mask_operand >= 0) {
      const uint32_t* const masks = c_.At<uint32_t>(i.s[i.mask_operand]);
      needed = masks[std::countr_zero(mask)];
      for (int l = 0; l < kLanes; ++l)
        if ((mask >> l & 1) != 0 && (masks[l] != needed || (needed >> l & 1) == 0))
          Fail(c_, i, "the mask does not name the lanes that are here", l);
    }
    if ((needed & w.alive & ~mask) != 0) {
      g->state = Group::kWaitsForLanes;
      return false;
    }
    if (i.mask_operand < 0 && mask != kAllLanes) Fail(c_, i, "needs all 32 lanes");
    Count(g->pc++);
    i.run(c_, i);
    return true;
  }

  void Arrive(const Instruction& i, uint32_t mask, Group* g) {
    if (mask != g->mask) Fail(c_, i, "only some of the threads come to the barrier");
    Count(g->pc);
    const uint32_t id = *c_.At<uint32_t>(i.s[0]);
    if (id >= kNumBarriers) Fail(c_, i, "no barrier " + std::to_string(id));
    arrived_[id] += static_cast<uint32_t>(std::popcount(mask));
    expected_[id] = i.literal != 0 ? *c_.At<uint32_t>(i.s[1]) : 0;
    g->state = Group::kAtBarrier;
    g->barrier = id;
  }

  void Exit(Warp& w, const Instruction& i, uint32_t mask, Group* g) {
    Count(g->pc++);
    for (const Copy& copy : w.copies)
      if ((copy.mask & mask) != 0)
        Fail(c_, i, "exit with copies under way", std::countr_zero(copy.mask & mask));
    w.alive &= ~mask;
    alive_ -= static_cast<uint32_t>(std::popcount(mask));
    g->mask &= ~mask;
    // Groups that wait for exited lanes must check again.
    for (Group& other : w.groups)
      if (other.state == Group::kWaitsForLanes) other.state = Group::kReady;
  }

  const Kernel& k_;
  const LaunchShape& shape_;
  Usage& usage_;
  Context c_;
  std::span<Warp> warps_;
  std::vector<char> shared_;
  uint32_t arrived_[kNumBarriers] = {}, expected_[kNumBarriers] = {};  // threads; 0: all
  uint32_t threads_ = 0, alive_ = 0;
};

}  // namespace

void Fail(const Context& c, const Instruction& i, const std::string& what, int lane) {
  std::string where = "block (" + std::to_string(c.block[0]) + "," + std::to_string(c.block[1]) +
                      "," + std::to_string(c.block[2]) + ")";
  if (lane >= 0)
    where += " thread " + std::to_string(c.warp->first_thread + static_cast<uint32_t>(lane));
  Die(c.kernel->file + ":" + std::to_string(i.line) + ": " + where + ": " + what + "\n  " +
      c.kernel->text[static_cast<size_t>(&i - c.kernel->code.data())] + "\n  in " + c.kernel->name);
}

void Run(const Kernel& kernel, const LaunchShape& shape, const char* parameters, Usage* usage,
         Contents* before) {
  static std::vector<Warp> warps;
  Runner(kernel, shape, parameters, warps, usage, before).RunAll();
}

}  // namespace kuiper::simt::ptx
