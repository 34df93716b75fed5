#include "plan/inference/readers/process_tree.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "cache/base/fd.h"
#include "cache/base/text.h"
#include "plan/inference/chance/fit.h"

namespace clairfs {
namespace {

// What is known of a thread holds for so long: it may have started another program since, or ended, and its
// number may be another's. A look-up takes some 50 us.
constexpr auto kFresh = std::chrono::seconds(10);

// A reader that has ended is noticed that soon by others that go on.
constexpr auto kCheck = std::chrono::seconds(1);

// Without an access in order. As the recorder's: nobody pauses that long within an epoch but for a model that
// is compiled.
constexpr auto kSilence = std::chrono::minutes(2);

// Ancestors that are looked at: a job under a batch system has ten or so.
constexpr int kDeepest = 32;

// include/linux/sched.h
constexpr uint64_t kForkedNoExec = 0x40;

// Process 1, or another that takes in those whose parent has ended, forked none of them.
constexpr uint32_t kInit = 1;

constexpr size_t kMostText = 4096;

std::string text_of(uint32_t number, const char* name) {
  const Fd file(::open(fmt::format("/proc/{}/{}", number, name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return "";
  std::string text(kMostText, '\0');
  const auto got = read_fully(file.get(), std::as_writable_bytes(std::span(text)), 0, "read /proc");
  text.resize(got ? *got : 0);
  return text;
}

// The process of a thread.
std::optional<uint32_t> process_of(uint32_t number) {
  constexpr std::string_view kName = "\nTgid:\t";
  const std::string status = text_of(number, "status");
  const size_t at = status.find(kName);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view rest = std::string_view(status).substr(at + kName.size());
  return parse_whole<uint32_t>(rest.substr(0, rest.find('\n')));
}

}  // namespace

std::optional<ProcessFacts> parse_process_stat(std::string_view stat) {
  // "7 (name) S 1 7 7 ...": a name may hold anything.
  const size_t name_ends = stat.rfind(')');
  const auto number = parse_whole<uint32_t>(stat.substr(0, std::min(stat.find(' '), stat.size())));
  if (!number || name_ends == std::string_view::npos) return std::nullopt;
  stat.remove_prefix(name_ends + 1);
  constexpr size_t kParent = 1, kSession = 3, kFlags = 6, kStarted = 19;  // fields after the name
  std::optional<uint64_t> fields[kStarted + 1];
  for (std::optional<uint64_t>& field : fields) {
    if (!stat.starts_with(' ')) return std::nullopt;
    stat.remove_prefix(1);
    const std::string_view word = stat.substr(0, std::min(stat.find_first_of(" \n"), stat.size()));
    if (&field == fields && (word == "Z" || word == "X")) return std::nullopt;
    field = parse_whole<uint64_t>(word);
    stat.remove_prefix(word.size());
  }
  if (!fields[kParent] || !fields[kFlags] || !fields[kStarted]) return std::nullopt;
  return ProcessFacts{*number, static_cast<uint32_t>(*fields[kParent]),
                      static_cast<uint32_t>(fields[kSession].value_or(0)), *fields[kStarted],
                      (*fields[kFlags] & kForkedNoExec) != 0};
}

// Threads have the flag as well as what was forked.
std::optional<ProcessFacts> facts_of_process(uint32_t number) {
  auto facts = parse_process_stat(text_of(number, "stat"));
  if (!facts || !facts->forked) return facts;
  const auto process = process_of(number);
  if (!process) return std::nullopt;
  facts->process = *process;
  return facts;
}

bool ProcessTree::is_known(uint32_t number, TimePoint now) const {
  const auto known = known_.find(number);
  return known != known_.end() && now - known->second.looked_up <= kFresh;
}

void ProcessTree::note(ThreadId thread, TimePoint now) {
  std::vector<std::pair<uint32_t, Known>> found;
  uint32_t number = thread.value;
  for (int depth = 0; number != 0 && depth < kDeepest; ++depth) {
    {
      const MutexLock lock(mutex_);
      if (is_known(number, now)) break;
    }
    Known one;
    one.looked_up = now;
    if (const auto facts = look_up_(number)) {
      one.facts = *facts;
      one.is_thread = facts->process != number;
      one.above = one.is_thread ? facts->process : facts->parent;
    }
    found.emplace_back(number, one);
    number = one.above;
  }
  if (found.empty()) return;
  const MutexLock lock(mutex_);
  // Those that read still are looked up again.
  if (known_.size() + found.size() > kMost) known_.clear();
  for (const auto& [known, one] : found) known_.insert_or_assign(known, one);
}

uint32_t ProcessTree::program_number(uint32_t number) const {
  for (int depth = 0; depth < kDeepest; ++depth) {
    const auto at = known_.find(number);
    if (at == known_.end()) return 0;
    const Known& one = at->second;
    if (!one.is_thread) {
      const auto parent = known_.find(one.above);
      const bool runs_parents = one.facts.forked && one.above > kInit && parent != known_.end() &&
                                parent->second.facts.session == one.facts.session;
      if (!runs_parents) return one.facts.process;
    }
    number = one.above;
  }
  return 0;
}

uint32_t ProcessTree::outer_program(uint32_t program) const {
  const auto at = known_.find(program);
  return at == known_.end() || at->second.above == 0 ? 0 : program_number(at->second.above);
}

Program ProcessTree::named(uint32_t program) const {
  const auto at = known_.find(program);
  return at == known_.end() ? Program() : Program{program, at->second.facts.started};
}

bool ProcessTree::lies_in(uint32_t thread, const Program& program) const {
  uint32_t number = program_number(thread);
  for (int depth = 0; number != 0 && depth < kDeepest; ++depth) {
    if (number == program.pid) return named(number) == program;
    number = outer_program(number);
  }
  return false;
}

bool ProcessTree::is_in(ThreadId thread, const Program& program) const {
  const MutexLock lock(mutex_);
  return lies_in(thread.value, program);
}

bool ProcessTree::is_alive(const Program& program) const {
  const auto facts = look_up_(program.pid);
  return facts && facts->started == program.started;
}

ProcessTree::Counts ProcessTree::count(const Counts& by_thread) const {
  Counts counts;
  for (const auto& [thread, opens] : by_thread) {
    uint32_t program = program_number(thread);
    for (int depth = 0; program != 0 && depth < kDeepest; ++depth) {
      counts[program] += opens;
      program = outer_program(program);
    }
  }
  return counts;
}

// Those that have most of the opens lie in each other.
uint32_t ProcessTree::smallest(const Counts& counts, size_t needed) const {
  uint32_t found = 0;
  for (const auto& [program, opens] : counts) {
    if (opens < needed) continue;
    if (found == 0 || lies_in(program, named(found))) found = program;
  }
  return found;
}

namespace {

size_t most_of(size_t opens) {
  return static_cast<size_t>(std::ceil(kMostly * static_cast<double>(opens)));
}

}  // namespace

Program ProcessTree::program_of(std::span<const uint32_t> threads) const {
  Counts by_thread;
  for (const uint32_t thread : threads) ++by_thread[thread];
  const MutexLock lock(mutex_);
  return named(smallest(count(by_thread), most_of(threads.size())));
}

// Programs without their threads, the largest first.
std::vector<Readers> ProcessTree::parts(const Counts& counts, size_t fewest, size_t most) const {
  Counts inner = counts;  // those that no program in them has all opens of
  for (const auto& [program, opened] : counts) {
    const auto outer = counts.find(outer_program(program));
    if (outer != counts.end() && outer->second == opened) inner.erase(outer->first);
  }
  std::vector<Readers> found;
  for (const auto& [program, opened] : inner) {
    if (opened >= fewest && opened < most) found.push_back({named(program), {}, opened});
  }
  std::sort(found.begin(), found.end(), [](const Readers& a, const Readers& b) {
    return a.opens != b.opens ? a.opens > b.opens : a.program.pid < b.program.pid;
  });
  return found;
}

std::vector<Readers> ProcessTree::readers(std::span<const SeenOpen> opens, size_t fewest) const {
  Counts by_thread;
  for (const SeenOpen& open : opens) ++by_thread[open.thread.value];
  Readers everybody{{}, {}, opens.size()};
  std::vector<Readers> all_parts;
  {
    const MutexLock lock(mutex_);
    const Counts counts = count(by_thread);
    everybody.program = named(smallest(counts, most_of(opens.size())));
    all_parts = parts(counts, fewest, opens.size());
  }
  std::vector<Readers> found{std::move(everybody)};
  for (Readers& part : all_parts) {
    if (found.size() > kMostReaders) break;
    if (!is_alive(part.program)) continue;
    const MutexLock lock(mutex_);
    for (const auto& [thread, opened] : by_thread) {
      if (lies_in(thread, part.program)) part.threads.insert(thread);
    }
    // Else it was forgotten meanwhile; without threads it would be everybody.
    if (!part.threads.empty()) found.push_back(std::move(part));
  }
  return found;
}

void ProcessTree::follow(const Program& program, TimePoint now) {
  const MutexLock lock(mutex_);
  followed_ = program;
  follows_ = program.pid != 0;
  in_order_ = checked_ = now;
}

bool ProcessTree::is_reader(ThreadId thread, TimePoint now) {
  if (!follows_ || thread.value == 0) return true;
  {
    const MutexLock lock(mutex_);
    const bool known = is_known(thread.value, now);
    const bool theirs = known && lies_in(thread.value, followed_);
    if (theirs || (known && now - checked_ < kCheck)) return theirs;
  }
  note(thread, now);
  Program followed;
  {
    const MutexLock lock(mutex_);
    followed = followed_;
    checked_ = now;
    if (lies_in(thread.value, followed)) return true;
  }
  if (is_alive(followed)) return false;
  const MutexLock lock(mutex_);
  if (followed_ == followed) {
    followed_ = {};
    follows_ = false;
  }
  return true;
}

bool ProcessTree::follows_another(const Program& program, TimePoint now) const {
  Program followed;
  {
    const MutexLock lock(mutex_);
    const bool inside = followed_ == program || lies_in(program.pid, followed_);
    if (!follows_ || inside || now - in_order_.load() > kSilence) return false;
    followed = followed_;
  }
  return is_alive(followed);
}

}  // namespace clairfs
