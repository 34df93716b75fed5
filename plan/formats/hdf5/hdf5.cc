// The rows of datasets in HDF5 files: what is stored of each, as libhdf5 says.
#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/hdf5/index_process.h"
#include "plan/formats/index/index_store.h"
#include "plan/formats/samples/record_table.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

std::vector<std::string> dataset_names(std::string_view names) {
  std::vector<std::string> all;
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    if (end != 0) all.emplace_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return all;
}

// `pieces`: of the files so far.
Status add_file(const DatasetSource& source, FileId file, const std::vector<std::string>& datasets,
                RecordTableBuilder& table, uint64_t& pieces) {
  const auto index = hdf5::index_file(source, file, datasets, {});
  if (!index) return index.error();
  pieces += index->layout.pieces();
  if (Status status = hdf5::check_pieces(pieces); !status) return status;
  for (const ByteRange& range : index->reads) {
    if (Status status = table.share(range); !status) return status;
  }
  return index->layout.add_samples(file, table);
}

}  // namespace

SampleIndexResult index_hdf5(const DatasetSource& source, const DatasetRoot& root, std::string_view file,
                             std::string_view dataset) {
  const auto files = find_data_files(source, root, file);
  if (!files) return plan_error("file", file, files.error().message);
  const std::vector<std::string> datasets = dataset_names(dataset);
  if (datasets.empty()) return plan_error("dataset", dataset, "names no dataset");
  // How the names are parted and spelled is not looked at: another spelling is another index.
  const IndexKey key{"hdf5", "dataset=" + std::string(dataset), *files};
  return stored_index(source, key, [&]() -> Result<IndexStore::Table> {
    RecordTableBuilder table(source.catalog, "hdf5");
    uint64_t pieces = 0;
    for (size_t i = 0; i < files->size(); ++i) {
      if (source.work) source.work->begin_part(i, files->size());
      const FileId id = (*files)[i];
      const Status added = add_file(source, id, datasets, table, pieces);
      if (!added && added.error().code != EINVAL) return added.error();
      if (!added) return plan_refusal("file", file, wrong_file(source, id, added.error().message));
    }
    return table.finish();
  });
}

}  // namespace clairfs
