#include "plan/inference/readers/reader_facts.h"

#include <algorithm>
#include <array>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>

#include "cache/base/fd.h"
#include "cache/base/text.h"

namespace clairfs {
namespace {

// A job may have these many ranks; more is something else.
constexpr uint64_t kMostRanks = 1 << 20;

// Those that come first hold where several are there.
constexpr std::array<std::string_view, 4> kWorldNames = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                                         "SLURM_NTASKS"};
constexpr std::array<std::string_view, 3> kSeedNames = {"PL_GLOBAL_SEED", "SEED", "RANDOM_SEED"};

// Environments are some KiB; longer ones are cut.
constexpr size_t kMostEnvironment = 256 << 10;

template <size_t N>
size_t place_in(const std::array<std::string_view, N>& names, std::string_view name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

}  // namespace

ReaderFacts facts_of_environment(std::string_view environment) {
  ReaderFacts facts;
  size_t best = kWorldNames.size();
  while (!environment.empty()) {
    const std::string_view entry = environment.substr(0, environment.find('\0'));
    environment.remove_prefix(std::min(entry.size() + 1, environment.size()));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = entry.substr(0, equals);
    const auto value = parse_whole<uint64_t>(entry.substr(equals + 1));
    if (!value) continue;
    const size_t place = place_in(kWorldNames, name);
    if (place < best && *value >= 1 && *value <= kMostRanks) {
      best = place;
      facts.world = value;
    }
    const bool is_seed = place_in(kSeedNames, name) < kSeedNames.size();
    if (is_seed && std::find(facts.seeds.begin(), facts.seeds.end(), *value) == facts.seeds.end())
      facts.seeds.push_back(*value);
  }
  return facts;
}

ReaderFacts facts_of_reader(ThreadId thread) {
  if (thread.value == 0) return {};
  const Fd file(::open(fmt::format("/proc/{}/environ", thread.value).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::string text(kMostEnvironment, '\0');
  const auto got = read_fully(file.get(), std::as_writable_bytes(std::span(text)), 0, "read an environment");
  if (!got) return {};
  text.resize(*got);
  return facts_of_environment(text);
}

}  // namespace clairfs
