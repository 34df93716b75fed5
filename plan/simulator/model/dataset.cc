#include "plan/simulator/model/dataset.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <sys/stat.h>

#include "cache/catalog/builder.h"

namespace clairfs {
namespace {

// One file a sample, numbered from 1 on behind the root.
class FilePerSample final : public SampleIndex {
 public:
  explicit FilePerSample(const Catalog& catalog) : catalog_(catalog) {}

  std::string_view format() const override { return "scenario"; }
  uint32_t size() const override { return catalog_.size() - 1; }
  uint32_t range_count(uint32_t) const override { return 1; }
  ByteRange range(uint32_t sample, uint32_t) const override {
    const FileId file(sample + 1);
    return {file, 0, catalog_.stamp(file).size};
  }
  void samples_of(FileId file, uint64_t, uint64_t,
                  const std::function<void(uint32_t sample)>& visit) const override {
    if (file.value > 0) visit(file.value - 1);
  }
  std::string path(uint32_t sample) const override { return catalog_.path(FileId(sample + 1)); }
  uint64_t memory_bytes() const override { return sizeof(*this); }

 private:
  const Catalog& catalog_;
};

}  // namespace

ScenarioDataset::ScenarioDataset(std::shared_ptr<const Catalog> catalog)
    : catalog_(std::move(catalog)), index_(std::make_unique<FilePerSample>(*catalog_)) {}

Result<std::unique_ptr<const ScenarioDataset>> ScenarioDataset::make(const std::vector<float>& sizes) {
  constexpr uint32_t kWholeFiles = std::numeric_limits<uint32_t>::max();  // a file is one chunk up to 4 GiB
  CatalogBuilder builder("/", kWholeFiles, sizes.size() + 1);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0555;
  const FileId root = builder.add(FileId(0), "", attributes);
  attributes.mode = S_IFREG | 0444;
  for (size_t sample = 0; sample < sizes.size(); ++sample) {
    const double bytes = std::clamp(sizes[sample] * kMegabyte, 1.0, double{kWholeFiles});
    attributes.size = static_cast<uint64_t>(bytes);
    builder.add(root, fmt::format("{:08x}", sample), attributes);
  }
  auto catalog = builder.finish(0, 0);
  if (!catalog) return catalog.error();
  return std::unique_ptr<const ScenarioDataset>(new ScenarioDataset(std::move(*catalog)));
}

EpochSequence node_sequence(const JobOrder& job, const EpochOrder& order, Epoch epoch, uint32_t w) {
  const WorkerShare& share = job.share(w);
  std::vector<uint32_t> samples(share.count());
  for (uint64_t k = 0; k < samples.size(); ++k) samples[k] = share.sample(order, k);
  return {epoch, std::move(samples), 0};
}

}  // namespace clairfs
