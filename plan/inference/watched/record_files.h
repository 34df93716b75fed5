// RecordFiles: the large files of which each READ is watched, as opens are elsewhere: those whose records can
// be numbered, when somebody reads them, without reading them for it.
//
//   an index is saved       by `clairfs index`, or by a plan (IndexStore); of an lmdb, hdf5 or megatron file,
//                           or of several, as a pattern names them
//   the file says it        npy, by its name; its header is read when the reader has read some records
//   a plan has said it      raw, whose records have a size that only its plan knows
//
// Several files whose records are numbered one after the other go by the first of them, their place.
//
// Others are watched as any file is: they are opened, and which bytes are read of them does not matter.
//
// Cost. A READ of any other file: a load, and for one file in 64 (any, where so many are watched) a look into
// a short table under a lock. A READ of such a file: three locks, each held for some ten nanoseconds. An
// index is in memory while its reader is looked at only (numbered()).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/index/saved_index.h"
#include "plan/inference/watched/access_recorder.h"
#include "plan/inference/watched/numberings.h"
#include "plan/tracking/read_runs.h"

namespace clairfs {

/// Thread-safe, but for look_for_indexes(), numbered() and let_go(), which are for one thread. The calls for
/// FUSE threads are watches(), read() and meet().
class RecordFiles {
 public:
  /// Indexes with larger files are not loaded for watching alone: some 3 million records.
  static constexpr uint64_t kMostIndexBytes = 32 << 20;
  /// Files with more records are not looked at: one order of them takes 36 MiB. Nor are those whose records
  /// are so small that no READ shows one.
  static constexpr uint32_t kMostRecords = 1 << 22;
  /// Places whose records are numbered at a time: those that are read most.
  static constexpr size_t kMostNumbered = 2;
  /// Indexes for which files are watched, and these files.
  static constexpr size_t kMostIndexed = 256;
  static constexpr size_t kMostIndexedFiles = 1024;
  /// Others: the newest. A folder of many npy files is read file by file.
  static constexpr size_t kMostOthers = 16;
  /// Files that are let alone since they could not be numbered: the newest.
  static constexpr size_t kMostRefused = 1024;

  /// Of a file with several indexes those are held that take `most_held` bytes together; one in any case.
  explicit RecordFiles(DatasetSource source, uint64_t most_held = kMostIndexBytes)
      : source_(std::move(source)), most_held_(most_held) {}

  /// Whether READs of the file are to be told apart by their places.
  bool watches(FileId file) const;
  /// A thread reads bytes of such a file: the pages, unless the thread only reads on (ReadRuns), or they lie
  /// further than 16 TiB.
  std::optional<ReadPages> read(ThreadId thread, FileId file, uint64_t offset, uint64_t length);
  /// Somebody has opened the file, or read in it: it is watched from now on if its name says what it holds.
  /// Returns whether that is news.
  bool meet(FileId file);
  /// A plan, in force or expected, has those samples: its file is watched from now on if only a plan can say
  /// what it holds.
  void know(const PlanSpec& plan);
  /// Watches the files that have a saved index now, and no longer those that have none; lets go. Reads the
  /// directory of saved indexes.
  void look_for_indexes();

  /// How the records are numbered, by place, of the files of which `least` READs or more are among the opens.
  /// Each numbering is kept until the next call, or let_go(). Loads saved indexes and reads headers, but no
  /// more of the dataset. A file that cannot be numbered is not watched any longer, whatever its name says;
  /// one of which the header could not be read is tried again at the next call.
  std::map<FileId, std::vector<Numbering>> numbered(std::span<const SeenOpen> opens, size_t least);
  void let_go() { kept_.clear(); }

 private:
  /// A way to number the records of files.
  struct Way {
    std::shared_ptr<const std::vector<FileId>> files;  ///< that hold them
    PlanSpec records;                                  ///< as Numbering has it, and `root`
    std::optional<IndexKey> index = {};                ///< that is saved

    FileId place() const { return files->front(); }
  };

  void note_files() REQUIRES(mutex_);
  void stop_watching(FileId place);
  std::vector<FileId> most_read(std::span<const SeenOpen> opens, size_t least) const;
  /// None: it cannot be numbered. Errors: those of reads.
  Result<std::vector<Numbering>> number(FileId place) const;
  Result<std::shared_ptr<const SampleIndex>> index_of(const Way& way) const;

  const DatasetSource source_;
  const uint64_t most_held_;
  ReadRuns runs_;                                  // self-synchronised
  std::map<FileId, std::vector<Numbering>> kept_;  // of numbered()
  std::atomic<uint64_t> bits_{0};                  // of the files' numbers modulo 64
  mutable Mutex mutex_;                            // leaf
  std::vector<Way> indexed_ GUARDED_BY(mutex_);
  std::vector<Way> others_ GUARDED_BY(mutex_);      // the newest last
  std::vector<FileId> files_ GUARDED_BY(mutex_);    // of both, sorted, each once
  std::vector<FileId> refused_ GUARDED_BY(mutex_);  // by stop_watching(); the newest last
};

/// The files that hold the records which an index of that key numbers.
std::vector<FileId> files_of_key(const IndexKey& key);

/// How a plan names these records; nothing where it cannot: files that are not all that a pattern stands for
/// in one folder, keys that lie in a file.
std::optional<PlanSpec> records_of_key(const IndexKey& key, const DatasetSource& source);

}  // namespace clairfs
