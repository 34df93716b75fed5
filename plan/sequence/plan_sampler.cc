#include "plan/sequence/plan_sampler.h"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/text.h"
#include "plan/formats/link_resolver.h"
#include "plan/formats/list_text.h"
#include "plan/formats/mds/mds_index.h"
#include "plan/samplers/families.h"
#include "plan/spec/keys.h"
#include "plan/spec/sampler_keys.h"

namespace clairfs {
namespace {

using Lists = std::shared_ptr<const IndexLists>;

// Enough for the comments at the head of a list and its first entry.
constexpr uint64_t kListHead = 64 << 10;

// Sample numbers of paths. Where several samples are the same file, which of them is meant makes no
// difference to what is read.
class PathNumbers {
 public:
  PathNumbers(const SampleIndex& index, const DatasetSource& source, const DatasetRoot& root)
      : resolver_(*source.catalog, source.prefixes), root_(root) {
    for (uint32_t sample = 0; sample < index.size(); ++sample) {
      if (index.range_count(sample) == 1) samples_.emplace_back(index.range(sample, 0).file, sample);
    }
    std::sort(samples_.begin(), samples_.end());
  }

  Result<uint32_t> find(std::string_view path) const {
    const Resolved file = resolver_.resolve(root_.folder, path, root_.links);
    const auto found = std::lower_bound(samples_.begin(), samples_.end(), std::pair(file.id, uint32_t{0}));
    if (file.kind != Resolved::Kind::file || found == samples_.end() || found->first != file.id) {
      return Error{EINVAL, "no sample of the dataset has this path; want paths below the plan's root"};
    }
    return found->second;
  }

 private:
  const LinkResolver resolver_;
  const DatasetRoot root_;
  std::vector<std::pair<FileId, uint32_t>> samples_;
};

// Whether there is such a sample, the lists that it goes to will say.
Result<uint32_t> sample_number(std::string_view text) {
  const auto value = parse_whole<uint32_t>(text);
  if (!value) return Error{EINVAL, "want a sample's number"};
  return *value;
}

// Orders out of text: lists of indices, or of paths when `paths` is given.
Result<Lists> read_lines(const std::string& text, std::string_view key, uint32_t n,
                         const PathNumbers* paths) {
  std::vector<std::vector<uint32_t>> lists(1);
  const Status status = for_each_line(text, [&](const ListLine& line) -> Status {
    if (line.kind == ListLine::Kind::epoch_end) {
      if (lists.size() > kMostLists) return plan_error(key, "", "more than a million orders");
      if (!lists.back().empty()) lists.emplace_back();
      return {};
    }
    const Result<uint32_t> sample = paths != nullptr ? paths->find(line.text) : sample_number(line.text);
    if (!sample) {
      return plan_error(
          key, "",
          fmt::format("line {}: {}: {}", line.number, shortened(line.text, 200), sample.error().message));
    }
    lists.back().push_back(*sample);
    return {};
  });
  if (!status) return status.error();
  if (lists.back().empty()) lists.pop_back();
  return make_index_lists(std::move(lists), n);
}

// A key's value that is a file or an array, as orders over n samples.
Result<Lists> read_lists(std::string_view key, const std::string& value, uint32_t n,
                         const DatasetSource& source, const PathNumbers* paths) {
  const bool in_place = value.starts_with('[');
  const std::string path = source.list_path(value);
  Result<std::string> text = in_place ? array_to_lines(value) : read_list_file(path, kListHead);
  if (!text) return text.error();
  if (lists_indices(*text)) {
    return in_place ? read_lines(*text, key, n, nullptr) : read_index_list(path, n);
  }
  if (paths == nullptr)
    return plan_error(key, value, "want sample numbers; paths need a dataset of which each sample is a file");
  if (!in_place) text = read_list_file(path);
  if (!text) return text.error();
  return read_lines(*text, key, n, paths);
}

Result<Lists> read_order(const PlanSpec& spec, uint32_t n, const DatasetSource& source,
                         const SampleIndex* index) {
  if (spec.sampler == "list" && spec.list_numbers_samples()) {
    // The list that numbers the samples is also their order.
    std::vector<uint32_t> all(n);
    std::iota(all.begin(), all.end(), 0U);
    return make_index_lists({std::move(all)}, n);
  }
  // A path does not say which sample of a file that holds several.
  if (spec.sampler != "list" || index == nullptr || index->shares_files()) {
    const bool subset = spec.sampler == "torch.subset";
    return read_lists(subset ? "indices" : "list", subset ? spec.indices : spec.list, n, source, nullptr);
  }
  const Result<DatasetRoot> root = find_root(spec, source);
  if (!root) return root.error();
  const PathNumbers paths(*index, source, *root);
  return read_lists("list", spec.list, n, source, &paths);
}

Result<std::vector<double>> read_plan_weights(const std::string& value, uint32_t n,
                                              const DatasetSource& source) {
  if (!value.starts_with('[')) {
    const std::string path = source.list_path(value);
    // For its bounds: lines are read one at a time below.
    if (const auto readable = read_list_file(path, 0); !readable) return readable.error();
    return read_weights(path, n);
  }
  return nlohmann::json::parse(value).get<std::vector<double>>();
}

// A shard's samples a line, as in the lists, or the dataset's index.json.
Result<std::vector<uint32_t>> read_shard_sizes(const std::string& value, const DatasetSource& source) {
  const bool in_place = value.starts_with('[');
  Result<std::string> text =
      in_place ? array_to_lines(value) : read_list_file(source.list_path(value), kMaxMdsIndexBytes + 1);
  if (!text) return text.error();
  if (text->size() > kMaxMdsIndexBytes)
    return plan_error("shard_sizes", value, "the file is larger than 64 MiB");
  std::vector<MdsShard> shards;
  if (text->starts_with('{')) {
    Result<std::vector<MdsShard>> parsed = parse_mds_index(*text);
    if (!parsed) return plan_error("shard_sizes", value, parsed.error().message);
    shards = std::move(*parsed);
  } else {
    const Status status = for_each_line(*text, [&](const ListLine& line) -> Status {
      if (line.kind == ListLine::Kind::epoch_end) return {};
      const auto samples = parse_whole<uint32_t>(line.text);
      if (!samples) {
        return plan_error("shard_sizes", "", fmt::format("line {}: want a shard's samples", line.number));
      }
      shards.push_back({.samples = *samples});
      return {};
    });
    if (!status) return status.error();
  }
  Result<std::vector<uint32_t>> sizes = mds_shard_sizes(shards);
  if (!sizes) return plan_error("shard_sizes", value, sizes.error().message);
  return sizes;
}

// The samples of each file, as they follow each other: the shards of a format that numbers them so.
std::vector<uint32_t> samples_of_files(const SampleIndex& index) {
  std::vector<uint32_t> sizes;
  FileId latest;
  for (uint32_t sample = 0; sample < index.size(); ++sample) {
    const FileId file = index.range_count(sample) == 0 ? latest : index.range(sample, 0).file;
    if (sample == 0 || file != latest) sizes.push_back(0);
    ++sizes.back();
    latest = file;
  }
  return sizes;
}

}  // namespace

Result<std::unique_ptr<Sampler>> make_plan_sampler(const PlanSpec& spec, uint32_t n,
                                                   const DatasetSource& source, const SampleIndex* index) {
  if (const Status keys = check_sampler_keys(spec); !keys) return keys.error();
  SamplerSpec made = sampler_spec(spec, n);
  if (spec.sampler == "list" || spec.sampler == "torch.subset") {
    Result<Lists> lists = read_order(spec, n, source, index);
    if (!lists) return lists.error();
    made.lists = std::move(*lists);
  }
  if (spec.sampler == "torch.weighted") {
    Result<std::vector<double>> weights = read_plan_weights(spec.weights, n, source);
    if (!weights) return weights.error();
    made.weights = std::move(*weights);
  }
  if (!spec.shard_sizes.empty()) {
    Result<std::vector<uint32_t>> sizes = read_shard_sizes(spec.shard_sizes, source);
    if (!sizes) return sizes.error();
    made.shard_sizes = std::make_shared<const std::vector<uint32_t>>(std::move(*sizes));
  } else if (spec.sampler == "streaming" && index != nullptr && index->shares_files()) {
    made.shard_sizes = std::make_shared<const std::vector<uint32_t>>(samples_of_files(*index));
  }
  Result<std::unique_ptr<Sampler>> sampler =
      spec.copies_shards() ? make_streaming_copies(made) : make_sampler(made);
  if (sampler) return sampler;
  // A plan that cannot be followed is a bad plan, whatever the reason.
  const int code = sampler.error().code;
  return Error{code == ENOTSUP ? EINVAL : code, "plan: " + sampler.error().message};
}

}  // namespace clairfs
