// The formats, one function each; make_sample_index() chooses among them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/samples/fixed_records.h"
#include "plan/formats/samples/sample_index.h"

namespace clairfs {

using SampleIndexResult = Result<std::shared_ptr<const SampleIndex>>;

/// torchvision.datasets.ImageFolder (folder.py, the same since 0.8; `allow_empty` as in 0.18). Errors where
/// torchvision raises, and where the numbering depends on folders outside the dataset.
SampleIndexResult index_imagefolder(const DatasetSource& source, const DatasetRoot& root, bool allow_empty);

/// timm's own folder reader (ReaderImageFolder). Errors: EINVAL where it depends on folders outside the
/// dataset, or on what Python calls the lower case of a name that is not ASCII.
SampleIndexResult index_timm_folder(const DatasetSource& source, const DatasetRoot& root);

/// All regular files below the root by bytewise sorted relative path; symlinks are neither followed nor
/// listed.
SampleIndexResult index_files(const DatasetSource& source, const DatasetRoot& root);

/// The files that the list names, one path below the root a line (or a JSON array of them), in its order.
/// Blank lines and lines that start with '#' are skipped. Errors: EINVAL with the line.
SampleIndexResult index_list(const DatasetSource& source, const DatasetRoot& root, const std::string& list);

/// The rows of the array in the NumPy file `file`, a path below the root.
SampleIndexResult index_npy(const DatasetSource& source, const DatasetRoot& root, std::string_view file);

/// Records of one size in the files that the pattern `file` stands for (find_data_files()), counted on from
/// one to the next. Errors: EINVAL, also for a file that ends within a record. REQUIRES: 0 < record <=
/// stride.
SampleIndexResult index_raw(const DatasetSource& source, const DatasetRoot& root, std::string_view file,
                            const RecordLayout& layout);

/// The samples that the list says byte by byte, "OFFSET LENGTH PATH" a line: paths are below the root, and
/// may be left out where the line before has the same. A line that begins with '+' is one more range of the
/// sample before. Errors: EINVAL with the line.
SampleIndexResult index_ranges(const DatasetSource& source, const DatasetRoot& root, const std::string& list);

/// The sequences of Megatron-LM's IndexedDataset: `file` is a NAME.bin, or a pattern for several, which count
/// on; the NAME.idx beside it, which every reader needs, is shared. Errors: EINVAL.
SampleIndexResult index_megatron(const DatasetSource& source, const DatasetRoot& root, std::string_view file);

/// The keys of a plan that say what Megatron-LM's GPTDataset makes of a NAME.bin.
struct GptPlan {
  uint64_t sequence_length = 0;  ///< tokens, at least 1
  uint64_t train_samples = 0;    ///< that training asks for; 0: one epoch's
  uint32_t seed = 0;
  std::string split = "1";  ///< parts of the documents, the first of which are trained on
  std::string cache = {};   ///< find_gpt_cache(); empty: the samples are computed from the four above
};

/// The training samples of GPTDataset, in the order of its own shuffle: sample i is dataset[i], a range for
/// each document whose tokens it takes. They are computed, or read from indexes that Megatron saved, which
/// then are shared, as the .idx is. Memory while it is made: 16 bytes a document of the file, 4 a
/// document and epoch, 12 a sample. Errors: EINVAL.
SampleIndexResult index_megatron_gpt(const DatasetSource& source, const DatasetRoot& root,
                                     std::string_view file, const GptPlan& plan);

/// The files that `file`, a pattern, stands for, or that `list` names, in their order, or else all below the
/// root whose name is one of the format, by path; none that begins with a '.'. Errors: EINVAL.
SampleIndexResult choose_shards(const DatasetSource& source, const DatasetRoot& root, std::string_view format,
                                const std::string& file, const std::string& list);

/// Those files, which are read from front to back, in stripes (formats/streams/stripes.h). Errors: EINVAL.
SampleIndexResult index_shards(const DatasetSource& source, const DatasetRoot& root, std::string_view format,
                               const std::string& file, const std::string& list);

/// The samples in those files, which are read at random: the frames of format=tfrecord, and of format=tar the
/// files that WebDataset makes a sample of, found by the headers before them (formats/shards/record_walk.h),
/// or by the index that another program left beside the shard. Errors: EINVAL with the cause, also for shards
/// that are damaged or compressed.
SampleIndexResult index_record_shards(const DatasetSource& source, const DatasetRoot& root,
                                      std::string_view format, const std::string& file,
                                      const std::string& list);

/// The samples of MosaicML Streaming's MDS shards; `file` is their index.json, or several parted by commas:
/// the samples of those streams one after the other. The index and the table at the head of each shard, which
/// every reader needs, are shared. Errors: EINVAL, also for shards that are there in compressed form only.
SampleIndexResult index_mds(const DatasetSource& source, const DatasetRoot& root, std::string_view file);

/// Rows of datasets in the HDF5 files that the pattern `file` stands for, counted on from one to the next.
/// `dataset` names them, parted by commas: row i of each is sample i. Their chunks as they are stored, found
/// by libhdf5 in a separate process (formats/hdf5/index_process.h). Shared are the bytes that it reads for
/// that, and small datasets beside large ones. Errors: EINVAL with the cause, also without libhdf5.
SampleIndexResult index_hdf5(const DatasetSource& source, const DatasetRoot& root, std::string_view file,
                             std::string_view dataset);

/// The keys of a plan that say what the samples of an LMDB file are.
struct LmdbKeys {
  std::string file;  ///< a data file, a folder with a data.mdb, or a pattern for several
  std::string keys;  ///< which record is which sample: see lmdb::make_key_order()
  std::string skip;  ///< wildcards of keys that are no samples, parted by commas
  std::string db;    ///< a named database; empty: the main one
};

/// The records of LMDB files, found by reading the pages of their trees. Shared are the pages that every
/// reader needs: metas, branches, leaves that lead to samples elsewhere, and values that belong to no sample
/// but are read by every worker. Errors: EINVAL with the cause, also for files that are torn or of another
/// kind.
SampleIndexResult index_lmdb(const DatasetSource& source, const DatasetRoot& root, const LmdbKeys& plan);

}  // namespace clairfs
