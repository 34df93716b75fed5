// The sequences of Megatron-LM's IndexedDataset, each a sample.
#include <string>
#include <string_view>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/index/index_store.h"
#include "plan/formats/records/megatron_index.h"
#include "plan/formats/samples/record_table.h"

namespace clairfs {

SampleIndexResult index_megatron(const DatasetSource& source, const DatasetRoot& root,
                                 std::string_view file) {
  const auto refuse = [&](const Error& error) { return plan_refusal("file", file, error); };
  const auto files = find_megatron_files(source, root, file);
  if (!files) return refuse(files.error());
  IndexKey key{"megatron", "", {}};
  for (const MegatronFiles& pair : *files) key.files.insert(key.files.end(), {pair.data, pair.index});
  return stored_index(source, key, [&]() -> Result<IndexStore::Table> {
    RecordTableBuilder table(source.catalog, "megatron");  // whose readers map the file, or use no buffer
    for (size_t i = 0; i < files->size(); ++i) {
      const MegatronFiles& pair = (*files)[i];
      if (source.work) source.work->begin_part(i, files->size());
      const Status added = for_each_sequence(source, pair.index, [&](const MegatronSequence& sequence) {
        return table.add_sample(ByteRange{pair.data, sequence.offset, sequence.bytes()});
      });
      if (!added) return refuse(added.error());
      const Status shared = table.share({pair.index, 0, source.catalog->stamp(pair.index).size});
      if (!shared) return refuse(shared.error());
    }
    return table.finish();
  });
}

}  // namespace clairfs
