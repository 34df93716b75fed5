#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "plan/formats/shards/record_walk.h"
#include "plan/formats/shards/tar_header.h"
#include "plan/formats/shards/tar_samples.h"

namespace clairfs {
namespace {

// Linux has no names of more than 4 KiB; other records of a pax header, such as ACLs, may be longer.
constexpr uint64_t kMostExtension = 1 << 20;

bool is_compressed(std::string_view bytes) {
  using namespace std::string_view_literals;
  constexpr std::array<std::string_view, 4> kMagics{"\x1f\x8b"sv, "BZh"sv,
                                                    "\xfd"
                                                    "7zXZ"sv,
                                                    "\x28\xb5\x2f\xfd"sv};
  return std::any_of(kMagics.begin(), kMagics.end(),
                     [&](std::string_view m) { return bytes.starts_with(m); });
}

class TarWalk final : public RecordWalk {
 public:
  explicit TarWalk(uint64_t size) : RecordWalk(size), samples_(records_) { needed_ = kTarBlock; }

 private:
  Status step(std::string_view bytes) override {
    if (is_tar_end(bytes)) {
      at_ = size_;
      return {};
    }
    const auto header = parse_tar_header(bytes);
    if (!header) return no_header(bytes);
    if (header->is_extension() || header->is_global()) return extend(*header, bytes);
    return member(*header, std::exchange(extension_, {}));
  }

  Error no_header(std::string_view bytes) const {
    if (at_ != 0) return {EINVAL, fmt::format("is damaged at byte {}", at_)};
    if (is_compressed(bytes)) return {EINVAL, "is compressed: the bytes of a sample are in no one place"};
    return {EINVAL, "is no tar archive"};
  }

  Status extend(const TarHeader& header, std::string_view bytes) {
    if (header.size > kMostExtension)
      return Error{EINVAL, fmt::format("has {} bytes of header at byte {}", header.size, at_)};
    needed_ = kTarBlock + in_tar_blocks(header.size);
    if (bytes.size() < needed_) return {};
    TarExtension global;
    TarExtension& found = header.is_global() ? global : extension_;
    const Status read = read_tar_extension(header, bytes.substr(kTarBlock, header.size), found);
    if (!read) return read;
    if (global.name || global.size || global.sparse)
      return Error{EINVAL, "has a name or a size in a global pax header, which is for all members"};
    at_ += std::exchange(needed_, kTarBlock);
    return {};
  }

  Status member(TarHeader header, const TarExtension& extension) {
    if (header.is_sparse() || extension.sparse)
      return Error{EINVAL, fmt::format("has a sparse file at byte {}", at_)};
    if (extension.size) header.size = *extension.size;
    const uint64_t after = size_ - at_ - kTarBlock;  // the header is there
    if (header.data() > after) return Error{EINVAL, "is cut off"};
    if (header.is_regular())
      samples_.add(extension.name ? *extension.name : header.name, {at_ + kTarBlock, header.size});
    // The last block of a tar need not be full.
    at_ += kTarBlock + std::min(in_tar_blocks(header.data()), after);
    return {};
  }

  TarSamples samples_;
  TarExtension extension_;  // of the next member
};

}  // namespace

std::unique_ptr<RecordWalk> walk_tar(uint64_t size) {
  return std::make_unique<TarWalk>(size);
}

}  // namespace clairfs
