#include "plan/simulator/scenario/sample_sizes.h"

#include <cerrno>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "cache/base/escaped.h"
#include "cache/catalog/file.h"
#include "cache/catalog/scan.h"
#include "plan/formats/scanned_dataset.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

std::vector<float> normal_sizes(const Scenario& scenario) {
  std::mt19937_64 random(scenario.seed);
  std::normal_distribution<double> distribution(scenario.mean, scenario.deviation);
  std::vector<float> sizes(scenario.samples);
  for (float& size : sizes) {
    double drawn = distribution(random);
    while (drawn < 0) drawn = distribution(random);
    size = static_cast<float>(drawn);
  }
  return sizes;
}

Result<std::shared_ptr<const Catalog>> catalog_at(const std::string& path, Logger& log) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return system_error(errno, "samples.path: " + escaped(path));
  return S_ISDIR(status.st_mode) ? scan_catalog(path, ScanOptions(), log) : load_catalog(path);
}

Result<std::vector<float>> file_sizes(const std::string& path, Logger& log) {
  const auto catalog = catalog_at(path, log);
  if (!catalog) return catalog.error();
  std::vector<float> sizes;
  sizes.reserve((*catalog)->count(Catalog::Kind::file));
  for (uint32_t id = 0; id < (*catalog)->size(); ++id) {
    if ((*catalog)->kind(FileId(id)) != Catalog::Kind::file) continue;
    const auto bytes = static_cast<double>((*catalog)->attributes(FileId(id)).st_size);
    sizes.push_back(static_cast<float>(bytes / kMegabyte));
  }
  if (sizes.empty())
    return Error{EINVAL, fmt::format("samples.path: {} holds no regular file", escaped(path))};
  return sizes;
}

Result<std::vector<float>> record_sizes(const Scenario& scenario, Logger& log) {
  const auto refuse = [](const Error& error) {
    return Error{error.code, "samples.records: " + error.message};
  };
  auto plan = parse_plan("shuffle=false " + scenario.records);  // the order is the scenario's
  if (!plan) return refuse(plan.error());
  const auto resolved = resolve_plan(std::move(*plan), 1);
  if (!resolved) return refuse(resolved.error());
  const auto source = scan_dataset(scenario.path, log);
  if (!source) return refuse(source.error());
  const auto index = make_sample_index(*resolved, *source);
  if (!index) return refuse(index.error());
  const SampleIndex& numbered = (*index)->numbered();
  std::vector<float> sizes(numbered.size());
  for (uint32_t sample = 0; sample < sizes.size(); ++sample) {
    uint64_t bytes = 0;
    for (uint32_t piece = 0; piece < numbered.range_count(sample); ++piece)
      bytes += numbered.range(sample, piece).length;
    sizes[sample] = static_cast<float>(static_cast<double>(bytes) / kMegabyte);
  }
  return sizes;
}

}  // namespace

Result<std::vector<float>> make_sample_sizes(const Scenario& scenario, Logger& log) {
  switch (scenario.size_source) {
    case SizeSource::path:
      return scenario.records.empty() ? file_sizes(scenario.path, log) : record_sizes(scenario, log);
    case SizeSource::normal:
      if (scenario.deviation > 0) return normal_sizes(scenario);
      break;
    case SizeSource::fixed:
      break;
  }
  return std::vector<float>(scenario.samples, static_cast<float>(scenario.mean));
}

}  // namespace clairfs
