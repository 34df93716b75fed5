// The records of LMDB files: where each value lies, read off the pages of the tree.
#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/index/index_store.h"
#include "plan/formats/lmdb/data_file.h"
#include "plan/formats/lmdb/key_order.h"
#include "plan/formats/samples/record_table.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace lmdb {
namespace {

// What those who write datasets put beside the samples: Efficient-PyTorch, Uni-Mol, fairchem, OCR toolkits.
constexpr std::array<std::string_view, 4> kNoSamples{"__len__", "__keys__", "length", "num-samples"};

std::vector<std::string> skipped_keys(std::string_view skip) {
  std::vector<std::string> patterns(kNoSamples.begin(), kNoSamples.end());
  while (!skip.empty()) {
    const size_t end = std::min(skip.find(','), skip.size());
    patterns.push_back(unescaped(skip.substr(0, end)));
    skip.remove_prefix(std::min(end + 1, skip.size()));
  }
  return patterns;
}

// Fills a table file by file. Errors: EINVAL with the cause alone as the message, or what a read returned.
class Indexer {
 public:
  Indexer(const DatasetSource& source, const LmdbKeys& plan, RecordTableBuilder& table, KeyOrder& order)
      : source_(source), plan_(plan), skip_(skipped_keys(plan.skip)), table_(table), order_(order) {}

  Status add(FileId file) {
    const Result<DataFile> data = DataFile::open(source_, file);
    if (!data) return data.error();
    named_.clear();
    for (const uint64_t meta : {0, 1}) {
      if (Status status = table_.share(data->page_range(meta)); !status) return status;
    }
    const uint32_t before = table_.samples();
    const Result<Tree> tree = plan_.db.empty() ? data->meta().main : find_named(*data);
    if (!tree) return tree.error();
    if (const std::string_view why = why_unreadable(*tree); !why.empty())
      return Error{EINVAL, std::string(why)};
    uint64_t records = 0;
    const Status walked = data->walk(*tree, [&](const DataFile::Visited& at) {
      if (at.kind == TreePage::Kind::branch) return table_.share(data->page_range(at.number));
      records += at.page.nodes();
      if (source_.work) source_.work->note(records, tree->entries);
      if (Status status = order_.begin_leaf(at.rank); !status) return status;
      return add_leaves(*data, at.number, at.page);
    });
    if (!walked) return walked;
    if (Status status = data->check_unchanged(); !status) return status;
    if (Status status = order_.end_file(); !status) return status;
    if (table_.samples() == before && !named_.empty() && plan_.db.empty())
      return Error{EINVAL, "has no samples but named databases; want db= one of " + named_};
    return {};
  }

 private:
  // The main tree leads to the roots of the others.
  Result<Tree> find_named(const DataFile& data) {
    std::optional<Tree> found;
    const Status walked = data.walk(data.meta().main, [&](const DataFile::Visited& at) -> Status {
      for (uint32_t node = 0; at.kind == TreePage::Kind::leaf && node < at.page.nodes(); ++node) {
        const auto leaf = at.page.leaf(node);
        if (!leaf) return outside(at.number);
        if (!leaf->tree) continue;
        note_name(leaf->key);
        if (leaf->key == plan_.db) found = parse_tree(at.page.bytes().substr(leaf->offset, Tree::kBytes));
      }
      return table_.share(data.page_range(at.number));
    });
    if (!walked) return walked.error();
    if (found) return *found;
    return Error{EINVAL, fmt::format("has no database of the name db={}; it has {}", shortened(plan_.db, 64),
                                     named_.empty() ? "none with a name" : named_)};
  }

  // A leaf that only has samples in it needs not be shared: whoever reads it reads them.
  Status add_leaves(const DataFile& data, uint64_t number, const TreePage& page) {
    bool holds = false;
    bool leads = false;
    for (uint32_t node = 0; node < page.nodes(); ++node) {
      const auto leaf = page.leaf(node);
      if (!leaf) return outside(number);
      if (leaf->tree) {
        note_name(leaf->key);
        continue;
      }
      if (leaf->overflow && !data.has_pages(leaf->page, uint64_t{leaf->bytes} + kPageHeader))
        return Error{EINVAL, fmt::format("has a value beyond its end: it is torn")};
      const ByteRange value = place_of(data, number, *leaf);
      const Result<bool> is_sample = add_record(*leaf, value);
      if (!is_sample) return is_sample.error();
      (leaf->overflow ? leads : holds) |= *is_sample;
    }
    return holds && !leads ? Status() : table_.share(data.page_range(number));
  }

  Result<bool> add_record(const Leaf& leaf, const ByteRange& value) {
    const bool skipped = std::any_of(skip_.begin(), skip_.end(), [&](const std::string& pattern) {
      return matches_wildcards(pattern, leaf.key);
    });
    if (!skipped) return order_.take(leaf.key, value);
    if (Status status = table_.share(value); !status) return status.error();
    return false;
  }

  static ByteRange place_of(const DataFile& data, uint64_t page, const Leaf& leaf) {
    ByteRange place = data.page_range(leaf.overflow ? leaf.page : page);
    place.offset += leaf.overflow ? kPageHeader : leaf.offset;
    place.length = leaf.bytes;
    return place;
  }

  static Error outside(uint64_t page) {
    return {EINVAL,
            fmt::format("has a record outside its page {}, or one of several values: it is torn", page)};
  }

  void note_name(std::string_view name) {
    constexpr size_t kEnough = 200;
    if (named_.size() < kEnough) named_ += (named_.empty() ? "" : ", ") + shortened(name, 64);
  }

  const DatasetSource& source_;
  const LmdbKeys& plan_;
  const std::vector<std::string> skip_;
  RecordTableBuilder& table_;
  KeyOrder& order_;
  std::string named_;  // databases of the file, for messages
};

}  // namespace
}  // namespace lmdb

SampleIndexResult index_lmdb(const DatasetSource& source, const DatasetRoot& root, const LmdbKeys& plan) {
  const auto files = find_data_files(source, root, plan.file, "data.mdb");
  if (!files) return plan_refusal("file", plan.file, files.error());
  const Result<std::string> keys = lmdb::key_order_text(plan.keys, source);
  if (!keys) return keys.error();
  const IndexKey key{"lmdb", fmt::format("keys={}\nskip={}\ndb={}", *keys, plan.skip, plan.db), *files};
  return stored_index(source, key, [&]() -> Result<IndexStore::Table> {
    RecordTableBuilder table(source.catalog, "lmdb");
    const auto order = lmdb::make_key_order(plan.keys, source, table);
    if (!order) return plan_refusal("keys", plan.keys, order.error());
    lmdb::Indexer indexer(source, plan, table, **order);
    for (size_t i = 0; i < files->size(); ++i) {
      if (source.work) source.work->begin_part(i, files->size());
      const FileId file = (*files)[i];
      const Status added = indexer.add(file);
      if (!added && added.error().code != EINVAL) return added.error();
      if (!added) return plan_refusal("file", plan.file, wrong_file(source, file, added.error().message));
    }
    if (const Status ended = (*order)->end(); !ended)
      return plan_error("keys", plan.keys, ended.error().message);
    return table.finish();
  });
}

}  // namespace clairfs
