#include "bench/host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>

#include "kuiper/base/clock.h"
#include "kuiper/base/text.h"

namespace kuiper::tools {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

// Returns the first line of a file, without zeros and spaces at its end; "" if there is none.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\0' || line.back() == ' ')) line.pop_back();
  return line;
}

std::optional<double> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Returns the values of "key : value" lines.
std::vector<std::string> ValuesOf(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::vector<std::string> values;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.rfind(key, 0) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    values.push_back(begin == std::string::npos ? "" : line.substr(begin));
  }
  return values;
}

// Returns the slowest and the fastest clock in MHz, of the processors that report one.
std::string Clocks(const std::string& root, int cpus) {
  std::vector<int> clocks;
  for (int i = 0; i < cpus; ++i) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(i);
    const std::optional<double> khz = ReadNumber(folder + "/cpufreq/scaling_cur_freq");
    if (khz) clocks.push_back(static_cast<int>(*khz / 1e3));
  }
  if (clocks.empty()) {
    for (const std::string& mhz : ValuesOf(root + "/proc/cpuinfo", "cpu MHz")) {
      clocks.push_back(std::atoi(mhz.c_str()));
    }
  }
  if (clocks.empty()) return "";
  const auto [low, high] = std::minmax_element(clocks.begin(), clocks.end());
  std::string text = std::to_string(*low);
  if (*low != *high) text.append("-").append(std::to_string(*high));
  return text + " MHz";
}

// Returns the word in brackets of "always [madvise] never".
std::string Chosen(const std::string& line) {
  const size_t begin = line.find('['), end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return line.substr(begin + 1, end - begin - 1);
}

// Returns "MAXN (0)", for example: the mode of a Jetson, by the names in its table.
std::string PowerMode(const std::string& root) {
  const std::string status = ReadLine(root + "/var/lib/nvpmodel/status");
  const size_t colon = status.find(':');
  if (colon == std::string::npos) return "";
  const std::string id = std::to_string(std::atoi(status.c_str() + colon + 1));
  std::ifstream table(root + "/etc/nvpmodel.conf");
  for (std::string line; std::getline(table, line);) {
    const size_t name = line.find("NAME=");
    if (line.find("POWER_MODEL") == std::string::npos || name == std::string::npos) continue;
    if (line.find("ID=" + id + " ") == std::string::npos) continue;
    return line.substr(name + 5, line.find_first_of(" >", name) - name - 5) + " (" + id + ")";
  }
  return id;
}

// Returns the temperature of the warmest zone, in degrees Celsius.
std::optional<double> Temperature(const std::string& root) {
  std::optional<double> warmest;
  for (int i = 0; i < 64; ++i) {
    const std::optional<double> value =
        ReadNumber(root + "/sys/class/thermal/thermal_zone" + std::to_string(i) + "/temp");
    if (value) warmest = std::max(warmest.value_or(*value / 1e3), *value / 1e3);
  }
  return warmest;
}

double Now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

Json DescribeHost(const std::string& root) {
  const auto models = ValuesOf(root + "/proc/cpuinfo", "model name");
  const auto processors = ValuesOf(root + "/proc/cpuinfo", "processor");
  const std::string load = ReadLine(root + "/proc/loadavg");
  Json host = Json::object();
  const auto set = [&](const char* name, const std::string& text) {
    if (!text.empty()) host[name] = text;
  };
  set("board", ReadLine(root + "/proc/device-tree/model"));
  set("cpu", models.empty() ? "" : models.front());
  if (!processors.empty()) host["cpus"] = processors.size();
  set("clock", Clocks(root, static_cast<int>(processors.size())));
  set("governor", ReadLine(root + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  const auto kilobytes = ReadKey(root + "/proc/meminfo", "MemTotal:");
  if (kilobytes) host["memory_gib"] = static_cast<double>(*kilobytes >> 10) / 1024;
  set("huge_pages", Chosen(ReadLine(root + "/sys/kernel/mm/transparent_hugepage/enabled")));
  set("kernel", ReadLine(root + "/proc/sys/kernel/osrelease"));
  set("compiler", kCompiler);
  set("build", KUIPER_BUILD_TYPE);
  set("load", load.substr(0, load.find(' ')));
  set("power_mode", PowerMode(root));
  if (const auto degrees = Temperature(root)) host["temperature"] = *degrees;
  return host;
}

OtherLoad::OtherLoad(std::string root) : root_(std::move(root)), begin_(Read()) {}

std::optional<OtherLoad::Times> OtherLoad::Read() const {
  // The fields are: cpu user nice system idle iowait irq softirq steal, in ticks of all processors.
  std::istringstream words(ReadLine(root_ + "/proc/stat"));
  std::string cpu;
  if (!(words >> cpu) || cpu != "cpu") return std::nullopt;
  const std::vector<double> ticks{std::istream_iterator<double>(words), {}};
  if (ticks.size() < 8) return std::nullopt;
  const auto tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  Times times;
  for (size_t i = 0; i < 8; ++i) times.all += tick * ticks[i];
  times.busy = times.all - tick * (ticks[3] + ticks[4]);
  rusage own = {};
  getrusage(RUSAGE_SELF, &own);
  for (const timeval& t : {own.ru_utime, own.ru_stime}) {
    times.own += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return times;
}

std::optional<double> OtherLoad::share() const {
  const std::optional<Times> end = Read();
  if (!begin_ || !end || end->all <= begin_->all) return std::nullopt;
  const double others = (end->busy - begin_->busy) - (end->own - begin_->own);
  return std::clamp(others / (end->all - begin_->all), 0.0, 1.0);
}

std::unique_ptr<PowerMeter> PowerMeter::Make(const std::string& root) {
  std::vector<Rail> rails;
  std::string names;
  for (int device = 0; device < 32; ++device) {
    const std::string folder = root + "/sys/class/hwmon/hwmon" + std::to_string(device) + "/";
    if (ReadLine(folder + "name") != "ina3221") continue;
    for (int i = 1; i <= 3; ++i) {
      const std::string n = std::to_string(i);
      const std::string name = ReadLine(folder + "in" + n + "_label");
      const Rail rail = {folder + "in" + n + "_input", folder + "curr" + n + "_input"};
      if (name.empty() || !ReadNumber(rail.first) || !ReadNumber(rail.second)) continue;
      // VDD_IN is the power of the whole module; on boards that have it, the other rails are parts
      // of it.
      const bool is_whole = name == "VDD_IN";
      if (names == "VDD_IN") continue;
      if (is_whole) rails.clear();
      rails.push_back(rail);
      if (is_whole) names.clear();
      names.append(names.empty() ? "" : ", ").append(name);
    }
  }
  if (rails.empty()) return nullptr;
  return std::unique_ptr<PowerMeter>(new PowerMeter(std::move(rails), std::move(names)));
}

PowerMeter::PowerMeter(std::vector<Rail> rails, std::string names)
    : rails_(std::move(rails)), names_(std::move(names)), watts_(Watts()), last_(Now()) {
  thread_ = std::thread([this] {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopped_.wait_for(lock, std::chrono::milliseconds(50), [this] { return stop_; })) {
      AddUp();
    }
  });
}

PowerMeter::~PowerMeter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

double PowerMeter::Watts() const {
  double watts = 0;
  for (const auto& [voltage, current] : rails_) {
    watts += 1e-6 * ReadNumber(voltage).value_or(0) * ReadNumber(current).value_or(0);
  }
  return watts;
}

void PowerMeter::AddUp() {
  const double watts = Watts(), now = Now();
  joules_ += (watts_ + watts) / 2 * (now - last_);
  watts_ = watts;
  last_ = now;
}

double PowerMeter::Joules() {
  const std::lock_guard<std::mutex> lock(mutex_);
  AddUp();
  return joules_;
}

}  // namespace kuiper::tools
