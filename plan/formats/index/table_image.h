// A RecordTable as bytes and back.
//
// The arrays as they are in memory; but files are numbers of a list that both sides have, and their addresses
// follow from their sizes.
#pragma once

#include <memory>
#include <span>

#include "plan/formats/index/image_stream.h"
#include "plan/formats/samples/record_table.h"

namespace clairfs {

class TableImage {
 public:
  /// REQUIRES: every file of the table, and of what it shares, is one of `files`.
  static void write(const RecordTable& table, std::span<const FileId> files, ImageWriter& to);
  /// Nothing unless the bytes are a table, of which all lies within the files as the catalog has them. By
  /// what order its ranges are found is believed.
  static std::shared_ptr<const RecordTable> read(ImageReader& from, std::span<const FileId> files,
                                                 std::shared_ptr<const Catalog> catalog,
                                                 std::string_view format);

 private:
  static bool read_files(ImageReader& from, std::span<const FileId> files, RecordTable& table);
  static bool read_ranges(ImageReader& from, RecordTable& table);
  static bool read_shared(ImageReader& from, std::span<const FileId> files, RecordTable& table);
  static bool ranges_lie_in_files(const RecordTable& table);
  static bool starts_ascend(const RecordTable& table);
};

}  // namespace clairfs
