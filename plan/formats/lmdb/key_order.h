// A KeyOrder says which records of a database are samples, and which number each has: the conventions of the
// programs that write them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/samples/record_table.h"

namespace clairfs::lmdb {

/// Takes the records of one file after the other, leaf by leaf, each once. For one thread. Errors: EINVAL, of
/// which the message is the cause alone.
class KeyOrder {
 public:
  virtual ~KeyOrder() = default;
  /// Records that are taken from now on are of the leaf of that rank in the database's own order.
  virtual Status begin_leaf(uint64_t rank) {
    static_cast<void>(rank);
    return {};
  }
  /// The next record of the leaf, in the database's own order. Whether it is a sample's.
  virtual Result<bool> take(std::string_view key, const ByteRange& value) = 0;
  /// The file has no more.
  virtual Status end_file() { return {}; }
  /// After the last file.
  virtual Status end() { return {}; }
};

/// `keys` is
///   "cursor"                 the database's own order: by key, bytewise unless it was made otherwise;
///   "decimal"                the keys 0, 1, 2 ... (or from another number on) are the samples;
///   "image-%09d,label-%09d"  the same with a prefix, a suffix, zeros in front (as printf() has them); with
///                            several patterns a sample has a value of each;
///   anything else            a file: sample i is the key in its line i, '%' and two hexadecimal digits stand
///                            for any byte. Blank lines and those that begin with '#' are skipped.
/// `table` gets the samples, and outlives the order. Errors: EINVAL as above; those of reading the file.
Result<std::unique_ptr<KeyOrder>> make_key_order(const std::string& keys, const DatasetSource& source,
                                                 RecordTableBuilder& table);

/// The part of `keys` that decides the order, as text: of a file the hash of its contents. Errors: those of
/// reading it.
Result<std::string> key_order_text(const std::string& keys, const DatasetSource& source);

/// "%2c" and the like turned into the bytes that they stand for.
std::string unescaped(std::string_view text);

}  // namespace clairfs::lmdb
