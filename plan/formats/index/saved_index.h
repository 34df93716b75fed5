// The file that holds the index of a record format, so that it is made once.
//
//   magic, version, byte order, XXH3-64 of the rest
//   the source's path, the format, what else decides the numbering, as text
//   of each file that it was made from: path, size, mtime, ctime, inode
//   the table (table_image.h)
//
// The same bytes are sent to the other nodes of a job.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/samples/record_table.h"

namespace clairfs {

/// All that decides what an index says.
struct IndexKey {
  std::string format;         ///< as the plan says it
  std::string parameters;     ///< the plan's other keys that matter, and of files that they name the contents
  std::vector<FileId> files;  ///< of the dataset, that the index is made from
};

/// A hash of the key, the same on all nodes of a job.
uint64_t index_number(const Catalog& catalog, const IndexKey& key);

/// The name of the file for that index, without a directory: another one for another source or key.
std::string saved_index_name(const Catalog& catalog, const IndexKey& key);

/// REQUIRES: all that the table says is of files of the key.
std::vector<std::byte> encode_index(const RecordTable& table, const IndexKey& key, const Catalog& catalog);

/// The node from whose copy of the dataset an index was made.
enum class IndexOrigin {
  here,        ///< this node's: the files have to be the very same
  other_node,  ///< another one's, where the source may be mounted elsewhere, and have other inodes
};

/// Of a file's first kIndexStartBytes: whether it may be an index of this version. Errors: EBADMSG.
inline constexpr size_t kIndexStartBytes = 24;
Status check_index_start(std::span<const std::byte> start);

/// The path of the source that an index of this version was made from, as its beginning says; nothing is
/// verified. Errors: EBADMSG.
Result<std::string> indexed_source(std::span<const std::byte> beginning);

/// The key of the index that begins with these bytes. The table is not looked at. Errors: EBADMSG, also where
/// the index is of another source, or one of its files has changed since.
Result<IndexKey> key_of_saved(std::span<const std::byte> beginning, const Catalog& catalog);

/// Verifies everything: no input makes the table read outside of it, or lead outside of the files. Errors:
/// EBADMSG with what is wrong: damage, another version, another index, a file that has changed since.
Result<std::shared_ptr<const RecordTable>> decode_index(std::span<const std::byte> image, const IndexKey& key,
                                                        const std::shared_ptr<const Catalog>& catalog,
                                                        IndexOrigin origin = IndexOrigin::here);

}  // namespace clairfs
