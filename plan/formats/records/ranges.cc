// The numbering that somebody wrote down byte by byte: the way in for every format that nothing here parses.
#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/list_text.h"
#include "plan/formats/samples/record_table.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// "[+]OFFSET LENGTH [PATH]"
struct RangeLine {
  bool same_sample = false;
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string_view path;  // empty: that of the line before
};

// A tab or a blank parts the fields, so that a path may have both.
std::string_view take_field(std::string_view& line) {
  const size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return field;
}

std::optional<RangeLine> parse_line(std::string_view line) {
  RangeLine parsed;
  parsed.same_sample = line.starts_with('+');
  if (parsed.same_sample) line.remove_prefix(1);
  const auto offset = parse_whole<uint64_t>(take_field(line));
  const auto length = parse_whole<uint64_t>(take_field(line));
  if (!offset || !length) return std::nullopt;
  parsed.offset = *offset;
  parsed.length = *length;
  parsed.path = line;
  return parsed;
}

// Fills a table line by line.
class RangeReader {
 public:
  RangeReader(const DatasetSource& source, const DatasetRoot& root)
      : source_(source), root_(root), table_(source.catalog, "ranges") {
    table_.set_read_block(kBufferedBlock);  // nobody says how these files are read
  }

  // Errors: EINVAL, of which the message is the cause alone.
  Status add(std::string_view line) {
    const auto parsed = parse_line(line);
    if (!parsed) return Error{EINVAL, "want OFFSET LENGTH PATH, parted by a tab or a blank"};
    if (parsed->same_sample && table_.samples() == 0)
      return Error{EINVAL, "adds to the sample before it, and there is none"};
    if (Status status = turn_to(parsed->path); !status) return status;
    if (!parsed->same_sample) {
      if (Status status = table_.add_sample(); !status) return status;
    }
    return table_.add_range({file_, parsed->offset, parsed->length});
  }

  std::shared_ptr<const RecordTable> finish() { return table_.finish(); }

 private:
  Status turn_to(std::string_view path) {
    if (path_.empty() && path.empty()) return Error{EINVAL, "want a path: no line before it has one"};
    if (path.empty() || path == path_) return {};
    if (path.starts_with('/')) return Error{EINVAL, "want a path relative to the plan's root"};
    const Result<FileId> found = find_data_file(source_, root_, path);
    if (!found) return found.error();
    path_ = path;
    file_ = *found;
    return {};
  }

  const DatasetSource& source_;
  const DatasetRoot root_;
  RecordTableBuilder table_;
  std::string path_;  // of the line before
  FileId file_;
};

}  // namespace

SampleIndexResult index_ranges(const DatasetSource& source, const DatasetRoot& root,
                               const std::string& list) {
  const bool in_place = list.starts_with('[');
  const std::string shown = in_place ? "" : list;
  const Result<std::string> text = in_place ? array_to_lines(list) : read_list_file(source.list_path(list));
  if (!text) return text.error();
  RangeReader ranges(source, root);
  const Status read = for_each_line(*text, [&](const ListLine& line) -> Status {
    if (line.kind == ListLine::Kind::epoch_end) return {};
    const Status added = ranges.add(line.text);
    if (added) return added;
    return plan_error(
        "list", shown,
        fmt::format("line {}: {}: {}", line.number, shortened(line.text, 200), added.error().message));
  });
  if (!read) return read.error();
  const auto table = ranges.finish();
  if (table->size() == 0) return plan_error("list", shown, "names no range");
  return SampleIndexResult(table);
}

}  // namespace clairfs
