// A job of several nodes over a dataset that exists only as a catalog: sizes as the test wants them,
// sequences as the real samplers make them.
#pragma once

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/samples/file_samples.h"
#include "plan/placement/job_uses.h"
#include "plan/sequence/access_sequence.h"
#include "plan/sequence/plan_sampler.h"

namespace clairfs {

/// One file a sample.
struct MadeUpJob {
  /// The sequences of a plan over files of these sizes, for as many nodes as the plan's `world`, one training
  /// rank each; `epochs` of them. `keys`: further ones of the plan, seed and batch among them.
  MadeUpJob(const std::vector<uint64_t>& sizes, uint32_t chunk_size, uint32_t node_count, uint32_t epochs,
            const std::string& keys)
      : catalog(make_catalog(sizes, chunk_size)), index(catalog, "files"), nodes(node_count) {
    for (uint32_t file = 0; file < sizes.size(); ++file) index.add(FileId(file + 1), FileId(file + 1));
    index.finish();
    const std::string text =
        "ranks_per_node=1 world=" + std::to_string(nodes) + " epochs=" + std::to_string(epochs) + " " + keys;
    const auto spec = resolve_plan(value(parse_plan(text)), nodes);
    auto order = value(make_plan_sampler(value(spec), index.size(), DatasetSource(), nullptr));
    auto plan = value(AccessSequence::make(*spec, std::move(order)));
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      auto& all = sequences.emplace_back();
      const auto shared = value(plan.order(Epoch(epoch)));
      for (uint32_t node = 0; node < nodes; ++node) {
        all.push_back(
            std::make_unique<EpochSequence>(plan.node_sequence(shared, Epoch(epoch), NodeId(node))));
      }
    }
  }

  /// Node n takes the part of node `role_of[n]`; without it, its own.
  JobUses uses(const std::vector<uint32_t>& role_of = {}) const {
    JobUses uses(*catalog, nodes);
    for (const auto& epoch : sequences) {
      for (uint32_t node = 0; node < nodes; ++node) {
        uses.add(*epoch[role_of.empty() ? node : role_of[node]], index, NodeId(node));
      }
    }
    return uses;
  }

  std::shared_ptr<const Catalog> catalog;
  FileSamples index;
  uint32_t nodes;
  std::vector<std::vector<std::unique_ptr<EpochSequence>>> sequences;  // by epoch and node

 private:
  template <class T>
  static T value(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
  }
  static std::shared_ptr<const Catalog> make_catalog(const std::vector<uint64_t>& sizes,
                                                     uint32_t chunk_size) {
    CatalogBuilder builder("/made-up", chunk_size, sizes.size() + 1);
    SourceAttributes root;
    root.mode = S_IFDIR | 0755;
    builder.add(FileId(0), "", root);
    for (size_t i = 0; i < sizes.size(); ++i) {
      char name[32];
      std::snprintf(name, sizeof name, "f%09zu", i);
      SourceAttributes file;
      file.mode = S_IFREG | 0644;
      file.size = sizes[i];
      builder.add(FileId(0), name, file);
    }
    return value(builder.finish(0, 0));
  }
};

}  // namespace clairfs
