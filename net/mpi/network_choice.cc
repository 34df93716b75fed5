#include "net/mpi/network_choice.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cache/base/escaped.h"
#include "cache/base/mutex.h"

namespace clairfs {
namespace {

// What a peer's death is no error to, or one that MPI returns. With cma within a machine and RDMA between,
// UCX takes it for a fatal error and ends this process too. With shared memory all senders write to one queue
// of the receiver's: if one dies after it has taken its place there and before its bytes are complete, the
// receiver hears nobody any more.
constexpr std::array<std::string_view, 2> kSurvivors = {"tcp", "self"};

// Whether all of a list with commas between are among those.
bool all_survive(std::string_view list) {
  for (;;) {
    const size_t comma = list.find(',');
    if (std::ranges::find(kSurvivors, list.substr(0, comma)) == kSurvivors.end()) return false;
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

constexpr const char* kUcxLibrary = "libucs.so.0";

// UCX's, from ucs/debug/log_def.h, which has had them so since 1.10.
constexpr int kUcxFatal = 0;    // UCS_LOG_LEVEL_FATAL
constexpr int kUcxWarning = 2;  // UCS_LOG_LEVEL_WARN; errors are lower
constexpr int kUcxInfo = 4;     // UCS_LOG_LEVEL_INFO
enum class Handled { stop, go_on };
using Handler = Handled (*)(const char* file, unsigned line, const char* function, int level,
                            const void* component, const char* format, va_list arguments);

Mutex taken_mutex;  // leaf
std::vector<std::string> transports_taken GUARDED_BY(taken_mutex);

// Of "ep_cfg[1]: tag(tcp/lo tcp/eth0) rma(...)" what is in the brackets after "tag".
void take_note(std::string_view message) {
  constexpr std::string_view kTagList = "tag(";
  const size_t begin = message.find(kTagList);
  if (begin == std::string_view::npos) return;
  std::string_view list = message.substr(begin + kTagList.size());
  list = list.substr(0, list.find(')'));
  const MutexLock lock(taken_mutex);
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    const std::string word(list.substr(0, end));
    if (!word.empty() && std::ranges::find(transports_taken, word) == transports_taken.end())
      transports_taken.push_back(word);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

Mutex ucx_log_mutex;                                  // before those of the log
Logger* ucx_log GUARDED_BY(ucx_log_mutex) = nullptr;  // null: nobody hears its warnings

void pass_on(int level, std::string_view message) {
  const MutexLock lock(ucx_log_mutex);
  if (ucx_log == nullptr) return;
  ucx_log->log(level == kUcxWarning ? spdlog::level::warn : spdlog::level::err, "UCX: {}", escaped(message));
}

// On the net thread, or on UCX's own.
Handled on_message(const char* /*file*/, unsigned /*line*/, const char* /*function*/, int level,
                   const void* /*component*/, const char* format, va_list arguments) {
  if (level == kUcxFatal) return Handled::go_on;  // to what ends the process
  if (level > kUcxWarning && level != kUcxInfo) return Handled::stop;
  std::array<char, 1024> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  if (level == kUcxInfo) {
    take_note(text.data());
  } else {
    pass_on(level, text.data());
  }
  return Handled::stop;
}

}  // namespace

std::string choose_network(const std::string& wanted, Logger& log) {
  // Builds of MPICH that have shared memory of their own have such a queue in it, too, and a call of MPI does
  // not return when a sender died there: that would be a hang. Nodes of one machine are as far apart as
  // others.
  ::setenv("MPIR_CVAR_NOLOCAL", "1", 0);
  const std::string safe = fmt::format("{}", fmt::join(kSurvivors, ","));
  if (wanted == "fast") {
    ::unsetenv("UCX_TLS");
  } else if (!wanted.empty()) {
    ::setenv("UCX_TLS", wanted == "safe" ? safe.c_str() : wanted.c_str(), 1);
  }
  const bool users = wanted.empty() && std::getenv("UCX_TLS") != nullptr;
  if (wanted.empty()) ::setenv("UCX_TLS", safe.c_str(), 0);
  const char* list = std::getenv("UCX_TLS");
  const std::string in_force = list == nullptr ? "whatever UCX finds" : fmt::format("UCX_TLS={}", list);
  const std::string by =
      users ? "as UCX_TLS is set" : fmt::format("--network {}", wanted.empty() ? "safe" : wanted);
  if (list == nullptr || !all_survive(list)) {
    // Those who chose something faster would lose it again by what follows.
    log.warn("{}: {} may end this node, or cut it off, when another one dies; --network safe would not", by,
             in_force);
    return fmt::format("{} ({}); the death of a node may end others or cut them off", by, in_force);
  }
  // No rendezvous: the receive is always posted before its request is sent, so there is nothing to ask for.
  // Over TCP this doubles the rate of 110 KB chunks, and segments of 64 KiB instead of 8 add to it
  // (tests/bench/programs/transport_bench.cc).
  ::setenv("UCX_RNDV_THRESH", "inf", 0);
  ::setenv("UCX_TCP_TX_SEG_SIZE", "64k", 0);
  ::setenv("UCX_TCP_RX_SEG_SIZE", "64k", 0);
  // Nor sends from our memory in place: when a peer died in the middle of one, UCX 1.13 was seen to end this
  // process too (uct_iface.h, assertion "comp->count > 0").
  ::setenv("UCX_ZCOPY_THRESH", "inf", 0);
  return fmt::format("{} ({})", by, in_force);
}

bool takes_tcp_alone() {
  const char* list = std::getenv("UCX_TLS");
  if (list == nullptr || !all_survive(list)) return false;
  return ::dlopen(kUcxLibrary, RTLD_LAZY | RTLD_NOLOAD) != nullptr;  // it stays loaded, as MPI does
}

// Its log is the one place where UCX tells. Its level is raised in the library alone: the environment's is
// read when it is loaded, and is what users set who want to see it all. UCX itself writes within its calls:
// while nobody reads what it writes to, the net thread would stand still.
void watch_network(Logger& log) {
  if (std::getenv("UCX_LOG_LEVEL") != nullptr || std::getenv("UCX_LOG_FILE") != nullptr) return;
  void* library = ::dlopen(kUcxLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
  using Push = void (*)(Handler);
  using Set = int (*)(const char* name, const char* value);
  const auto push = reinterpret_cast<Push>(::dlsym(library, "ucs_log_push_handler"));
  const auto set = reinterpret_cast<Set>(::dlsym(library, "ucs_global_opts_set_value"));
  if (push == nullptr || set == nullptr) return;
  {
    const MutexLock lock(ucx_log_mutex);
    ucx_log = &log;
  }
  push(on_message);
  set("LOG_LEVEL", "info");
}

void forget_log() {
  const MutexLock lock(ucx_log_mutex);
  ucx_log = nullptr;
}

std::string network_taken() {
  const MutexLock lock(taken_mutex);
  return fmt::format("{}", fmt::join(transports_taken, " "));
}

}  // namespace clairfs
