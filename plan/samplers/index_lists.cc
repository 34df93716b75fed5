#include "plan/samplers/index_lists.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/base/file_stamp.h"
#include "cache/base/text.h"

namespace clairfs {
namespace {

constexpr size_t kMaxLine = 4096;        // longer lines are not ours
constexpr size_t kReadSize = 256 << 10;  // a few hundred requests for the list of ImageNet

struct TextFile {
  Fd fd;
  FileStamp stamp;
};

Result<FileStamp> stamp_of(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error(errno, "stat " + path);
  if (!S_ISREG(status.st_mode)) return Error{EINVAL, path + " is not a regular file"};
  return FileStamp{static_cast<uint64_t>(status.st_size),
                   stamp_nanoseconds(status.st_mtim.tv_sec, status.st_mtim.tv_nsec)};
}

Result<TextFile> open_text(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error(errno, "open " + path);
  const Result<FileStamp> stamp = stamp_of(fd.get(), path);
  if (!stamp) return stamp.error();
  return TextFile{std::move(fd), *stamp};
}

// Calls `take(line, offset of the line)` for each line of [begin, end), without its newline.
template <class Take>
Status scan_lines(int fd, const std::string& path, uint64_t begin, uint64_t end, Take take) {
  std::string buffer;
  uint64_t line_at = begin;  // file offset of buffer[0]
  for (uint64_t at = begin; at < end;) {
    const size_t kept = buffer.size();
    buffer.resize(kept + std::min<uint64_t>(kReadSize, end - at));
    const ssize_t got = ::pread(fd, buffer.data() + kept, buffer.size() - kept, static_cast<off_t>(at));
    if (got < 0 && errno != EINTR) return system_error(errno, "read " + path);
    if (got == 0) return Error{ESTALE, path + " became shorter while it was read"};
    buffer.resize(kept + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    at = line_at + buffer.size();

    size_t start = 0;
    for (size_t stop; (stop = buffer.find('\n', start)) != std::string::npos; start = stop + 1) {
      const Status taken = take(std::string_view(buffer).substr(start, stop - start), line_at + start);
      if (!taken) return taken;
    }
    buffer.erase(0, start);
    line_at += start;
    if (buffer.size() > kMaxLine) return Error{EINVAL, path + ": a line is longer than 4096 bytes"};
  }
  return buffer.empty() ? Status() : take(std::string_view(buffer), line_at);
}

enum class LineKind { index, comment, separator };

LineKind kind_of(std::string_view line) {
  if (line.empty() || line.starts_with("# epoch") || line.starts_with("#epoch")) return LineKind::separator;
  return line.front() == '#' ? LineKind::comment : LineKind::index;
}

Result<uint32_t> parse_index(std::string_view line, uint64_t n) {
  if (const auto value = parse_whole<uint64_t>(line); value && *value < n)
    return static_cast<uint32_t>(*value);
  return Error{EINVAL, "'" + std::string(line.substr(0, 40)) + "' is not a sample index from 0 to " +
                           std::to_string(n - 1)};
}

Error at_line(const std::string& path, uint64_t line, const Error& error) {
  return Error{error.code, path + ":" + std::to_string(line) + ": " + error.message};
}

class MemoryLists : public IndexLists {
 public:
  explicit MemoryLists(std::vector<std::vector<uint32_t>> lists) : lists_(std::move(lists)) {}

  size_t count() const override { return lists_.size(); }
  uint64_t size(size_t list) const override { return lists_[list].size(); }
  Result<std::vector<uint32_t>> read(size_t list) const override { return lists_[list]; }

 private:
  const std::vector<std::vector<uint32_t>> lists_;
};

// Where one list stands in its file.
struct Section {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size = 0;
};

class FileLists : public IndexLists {
 public:
  FileLists(TextFile file, std::string path, uint64_t n)
      : file_(std::move(file)), path_(std::move(path)), n_(n) {}

  // REQUIRES: called once, before anything else.
  Status scan() {
    bool inside = false;
    uint64_t line_number = 0;
    const Status scanned = scan_lines(file_.fd.get(), path_, 0, file_.stamp.size,
                                      [&](std::string_view raw, uint64_t at) -> Status {
                                        ++line_number;
                                        const std::string_view line = trimmed(raw);
                                        const LineKind kind = kind_of(line);
                                        if (kind == LineKind::separator) inside = false;
                                        if (kind != LineKind::index) return {};
                                        const Result<uint32_t> index = parse_index(line, n_);
                                        if (!index) return at_line(path_, line_number, index.error());
                                        if (!inside && sections_.size() == kMostLists) {
                                          return Error{EINVAL, path_ + ": more than a million orders"};
                                        }
                                        if (!inside) sections_.push_back({at, at, 0});
                                        inside = true;
                                        sections_.back().end = at + raw.size();
                                        ++sections_.back().size;
                                        return {};
                                      });
    if (scanned && sections_.empty()) return Error{EINVAL, path_ + " holds no sample index"};
    return scanned;
  }

  size_t count() const override { return sections_.size(); }
  uint64_t size(size_t list) const override { return sections_[list].size; }

  Result<std::vector<uint32_t>> read(size_t list) const override {
    const Section& section = sections_[list];
    std::vector<uint32_t> indices;
    indices.reserve(section.size);
    const Status parsed = scan_lines(file_.fd.get(), path_, section.begin, section.end,
                                     [&](std::string_view raw, uint64_t) -> Status {
                                       const std::string_view line = trimmed(raw);
                                       if (kind_of(line) != LineKind::index) return {};
                                       const Result<uint32_t> index = parse_index(line, n_);
                                       if (!index) return index.error();
                                       indices.push_back(*index);
                                       return {};
                                     });
    const Result<FileStamp> stamp = stamp_of(file_.fd.get(), path_);
    if (!stamp) return stamp.error();
    if (*stamp != file_.stamp || (parsed && indices.size() != section.size)) {
      return Error{ESTALE, path_ + " changed since the plan was registered; register the plan again"};
    }
    if (!parsed) return parsed.error();
    return indices;
  }

 private:
  const TextFile file_;
  const std::string path_;
  const uint64_t n_;
  std::vector<Section> sections_;  // constant after scan()
};

}  // namespace

Result<std::shared_ptr<const IndexLists>> make_index_lists(std::vector<std::vector<uint32_t>> lists,
                                                           uint64_t n) {
  if (lists.empty()) return Error{EINVAL, "list: no order is given"};
  for (const auto& list : lists) {
    const auto bad = std::ranges::find_if(list, [n](uint32_t index) { return index >= n; });
    if (bad == list.end()) continue;
    return Error{EINVAL,
                 "list: sample index " + std::to_string(*bad) + " is not below n = " + std::to_string(n)};
  }
  return std::shared_ptr<const IndexLists>(std::make_shared<MemoryLists>(std::move(lists)));
}

Result<std::shared_ptr<const IndexLists>> read_index_list(const std::string& path, uint64_t n) {
  Result<TextFile> file = open_text(path);
  if (!file) return Error{file.error().code, "list: " + file.error().message};
  const auto lists = std::make_shared<FileLists>(std::move(*file), path, n);
  const Status scanned = lists->scan();
  if (!scanned) return Error{scanned.error().code, "list: " + scanned.error().message};
  return std::shared_ptr<const IndexLists>(lists);
}

Result<std::vector<double>> read_weights(const std::string& path, uint64_t limit) {
  const Result<TextFile> file = open_text(path);
  if (!file) return Error{file.error().code, "weights: " + file.error().message};
  std::vector<double> weights;
  uint64_t line_number = 0;
  const Status parsed =
      scan_lines(file->fd.get(), path, 0, file->stamp.size, [&](std::string_view raw, uint64_t) -> Status {
        ++line_number;
        const std::string line(trimmed(raw));
        if (kind_of(line) != LineKind::index) return {};
        char* end = nullptr;
        const double weight = std::strtod(line.c_str(), &end);
        if (*end != '\0' || !std::isfinite(weight) || weight < 0) {
          return at_line(path, line_number,
                         {EINVAL, "'" + line.substr(0, 40) + "' is not a finite weight >= 0"});
        }
        if (weights.size() == limit) {
          return at_line(path, line_number, {EINVAL, "more than " + std::to_string(limit) + " weights"});
        }
        weights.push_back(weight);
        return {};
      });
  if (!parsed) return Error{parsed.error().code, "weights: " + parsed.error().message};
  return weights;
}

}  // namespace clairfs
