#include "fs/control/residency.h"

#include <cerrno>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"

namespace clairfs {
namespace {

// Calls `visit` for every regular file at or below `top`.
void for_each_file_below(const Catalog& catalog, FileId top, const std::function<void(FileId)>& visit) {
  std::vector<FileId> left = {top};
  while (!left.empty()) {
    const FileId id = left.back();
    left.pop_back();
    if (catalog.kind(id) == Catalog::Kind::file) visit(id);
    if (catalog.kind(id) != Catalog::Kind::directory) continue;
    const Catalog::Children children = catalog.children(id);
    for (uint32_t i = 0; i < children.count; ++i) left.emplace_back(children.first.value + i);
  }
}

template <class Visit>
void for_each_chunk(const Catalog& catalog, FileId file, const Visit& visit) {
  const Catalog::Chunks chunks = catalog.chunks(file);
  for (uint32_t i = 0; i < chunks.count; ++i) visit(ChunkId(chunks.first.value + i));
}

void count_chunk(Residency& sum, const Catalog& catalog, const ChunkCache& cache,
                 const PlacementMap* placement, ChunkId chunk) {
  const uint32_t length = catalog.range(chunk).length;
  sum.bytes += length;
  const Tier tier = cache.tier_of(chunk);
  if (tier == Tier::ram) sum.ram += length;
  if (tier == Tier::nvme) sum.nvme += length;
  if (placement == nullptr) return;
  const auto home = placement->home(chunk);
  (home ? sum.homes[home->node.value] : sum.homeless) += length;
}

}  // namespace

Residency residency_of(const Catalog& catalog, const ChunkCache& cache, const PlacementMap* placement,
                       FileId top) {
  Residency sum;
  for_each_file_below(catalog, top, [&](FileId file) {
    ++sum.files;
    for_each_chunk(catalog, file, [&](ChunkId chunk) { count_chunk(sum, catalog, cache, placement, chunk); });
  });
  return sum;
}

std::string residency_json(const Residency& residency) {
  nlohmann::ordered_json json = {{"files", residency.files},
                                 {"bytes", residency.bytes},
                                 {"ram", residency.ram},
                                 {"nvme", residency.nvme},
                                 {"none", residency.bytes - residency.ram - residency.nvme}};
  if (!residency.homes.empty() || residency.homeless > 0) {
    json["homes"] = nlohmann::ordered_json::object();
    for (const auto& [node, bytes] : residency.homes) json["homes"][std::to_string(node)] = bytes;
    json["homeless"] = residency.homeless;
  }
  return json.dump() + "\n";
}

std::optional<Result<std::string>> run_residency_command(
    const Catalog& catalog, ChunkCache& cache,
    const std::function<std::shared_ptr<const PlacementMap>()>& placement, std::string_view command) {
  const size_t end = std::min(command.find(' '), command.size());
  const std::string_view verb = command.substr(0, end);
  if (verb != "where" && verb != "evict") return std::nullopt;
  const std::string_view path = command.substr(std::min(end + 1, command.size()));
  const auto top = catalog.find(path);
  if (!top) return Error{ENOENT, fmt::format("the dataset has no {}", escaped(path))};
  if (verb == "evict") {
    for_each_file_below(catalog, *top, [&](FileId file) {
      for_each_chunk(catalog, file, [&](ChunkId chunk) { cache.evict(chunk); });
    });
  }
  return Result<std::string>(residency_json(residency_of(catalog, cache, placement().get(), *top)));
}

}  // namespace clairfs
