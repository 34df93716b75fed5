#include "plan/formats/dataset.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/base/text.h"
#include "plan/formats/formats.h"
#include "plan/formats/index_work.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

SampleIndexResult number_samples(const PlanSpec& spec, const DatasetSource& source, const DatasetRoot& root) {
  if (spec.format == "imagefolder") return index_imagefolder(source, root, spec.allow_empty);
  if (spec.format == "timm") return index_timm_folder(source, root);
  if (spec.format == "files") return index_files(source, root);
  if (spec.format == "list") return index_list(source, root, spec.list);
  if (spec.format == "ranges") return index_ranges(source, root, spec.list);
  if (spec.format == "npy") return index_npy(source, root, spec.file);
  if (spec.format == "raw") {
    const uint64_t stride = spec.stride == 0 ? spec.record : spec.stride;
    return index_raw(source, root, spec.file, {spec.header, spec.record, stride});
  }
  if (spec.format == "megatron" && spec.sequence_length == 0) return index_megatron(source, root, spec.file);
  if (spec.format == "megatron") {
    const auto seed = parse_whole<uint32_t>(spec.seed);
    if (!seed && spec.cache.empty())
      return plan_error("seed", spec.seed, "want Megatron's --seed, a number from 0 to 2^32 - 1");
    return index_megatron_gpt(source, root, spec.file,
                              {spec.sequence_length, spec.train_samples, seed.value_or(0),
                               spec.split.empty() ? "1" : spec.split, spec.cache});
  }
  if (spec.names_shards()) {
    const std::string numbering = spec.list_numbers_samples() ? spec.list : "";
    return spec.random_access ? index_record_shards(source, root, spec.format, spec.file, numbering)
                              : index_shards(source, root, spec.format, spec.file, numbering);
  }
  if (spec.format == "mds") return index_mds(source, root, spec.file);
  if (spec.format == "hdf5") return index_hdf5(source, root, spec.file, spec.dataset);
  if (spec.format == "lmdb") return index_lmdb(source, root, {spec.file, spec.lmdb_keys, spec.skip, spec.db});
  SampleIndexResult index = index_imagefolder(source, root, spec.allow_empty);
  return index ? index : index_files(source, root);
}

}  // namespace

Result<std::string> DatasetSource::read_whole(FileId file) const {
  constexpr uint64_t kAtOnce = 4 << 20;
  const uint64_t size = catalog->stamp(file).size;
  std::vector<ByteRange> pieces;
  for (uint64_t at = 0; at < size; at += kAtOnce) pieces.push_back({file, at, std::min(kAtOnce, size - at)});
  const auto read = read_all(pieces);
  if (!read) return read.error();
  std::string whole;
  for (const std::string& piece : *read) whole += piece;
  return whole;
}

// A list in the mount is read where it comes from: opened through the mount it would have to wait for the
// kernel, which holds the folder's lock while a plan is set as its attribute, and it would keep the mount
// busy.
std::string DatasetSource::list_path(const std::string& path) const {
  const std::string full = path.starts_with('/') || list_folder.empty() ? path : list_folder + "/" + path;
  const std::string plain = std::filesystem::path(full).lexically_normal();
  const bool mounted = !prefixes.mount.empty() && plain.starts_with(prefixes.mount + "/");
  return mounted ? prefixes.source + plain.substr(prefixes.mount.size()) : full;
}

Result<std::vector<std::string>> DatasetSource::read_all(std::span<const ByteRange> pieces) const {
  if (work) {
    if (work->cancelled()) return Error{ECANCELED, "plan: cancelled while its index was made"};
    for (const ByteRange& piece : pieces) work->note_read(piece.length);
  }
  if (read_many) return read_many(pieces);
  if (!read_bytes) return Error{ENOTSUP, "plan: the dataset's files cannot be read here"};
  std::vector<std::string> all;
  for (const ByteRange& piece : pieces) {
    Result<std::string> bytes = read_bytes(piece.file, piece.offset, static_cast<uint32_t>(piece.length));
    if (!bytes) return bytes.error();
    all.push_back(std::move(*bytes));
  }
  return all;
}

Result<std::string> read_list_file(const std::string& path, uint64_t most) {
  // A pipe without a writer must not block the open.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error(errno, "plan: open " + path);
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) return system_error(errno, "plan: stat " + path);
  if (!S_ISREG(status.st_mode)) return Error{EINVAL, "plan: " + path + ": want a regular file"};
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > kMaxListBytes) {
    return Error{EINVAL,
                 fmt::format("plan: {}: {} bytes are too many; want at most {}", path, size, kMaxListBytes)};
  }
  std::string text(std::min(size, most), '\0');
  const auto got = read_fully(fd.get(), std::as_writable_bytes(std::span(text)), 0, "plan: read " + path);
  if (!got) return got.error();
  if (*got < text.size()) return Error{EIO, "plan: read " + path + ": the file became shorter"};
  return text;
}

Result<DatasetRoot> find_root(const PlanSpec& spec, const DatasetSource& source) {
  const Resolved found = LinkResolver(*source.catalog, source.prefixes).resolve(FileId(0), spec.root);
  if (found.kind != Resolved::Kind::directory) {
    return plan_error("root", spec.root,
                      "no such folder in the dataset; want a path relative to the mount point");
  }
  return DatasetRoot{found.id, found.links};
}

SampleIndexResult make_sample_index(const PlanSpec& spec, const DatasetSource& source) {
  const Result<DatasetRoot> root = find_root(spec, source);
  if (!root) return root.error();
  SampleIndexResult index = number_samples(spec, source, *root);
  if (!index) return index;
  const uint32_t count = (*index)->numbered().size();
  if (count == 0) {
    return plan_error("root", spec.root, fmt::format("no sample in it (format={})", (*index)->format()));
  }
  if (spec.n != 0 && spec.n != count) {
    return plan_error("n", std::to_string(spec.n),
                      fmt::format("the dataset has {} {} (format={})", count,
                                  (*index)->is_stream() ? "shards" : "samples", (*index)->format()));
  }
  if (!spec.index.empty() && spec.index != identity_text(**index)) {
    return plan_error("index", spec.index,
                      fmt::format("this node finds other samples ({}): its files are not those of the node "
                                  "that registered the plan",
                                  identity_text(**index)));
  }
  return index;
}

std::string identity_text(const SampleIndex& index) {
  return index.identity() == 0 ? "" : fmt::format("{:016x}", index.identity());
}

}  // namespace clairfs
