#include "plan/formats/records/megatron_index.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include <fmt/format.h>

#include "plan/formats/data_files.h"
#include "plan/formats/index_work.h"
#include "plan/formats/records/little_endian.h"

namespace clairfs {
namespace {

constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kMegatronHeader = 34;  // magic, version, type of token, numbers of sequences and documents
constexpr uint64_t kSequencesAtOnce = 1 << 16;

// What the header of an index says.
struct MegatronHeader {
  uint64_t token_bytes;
  uint64_t sequences;
};

// Errors: EINVAL with the cause alone.
Result<MegatronHeader> parse_megatron_header(std::string_view bytes, uint64_t file_size) {
  // By the code of the type: none, uint8, int8, int16, int32, int64, float64, float32, uint16.
  constexpr std::array<uint64_t, 9> kTokenBytes{0, 1, 1, 2, 4, 8, 8, 4, 2};
  if (bytes.size() < kMegatronHeader || !bytes.starts_with(kMegatronMagic))
    return Error{EINVAL, "is no index of Megatron's"};
  const uint64_t version = little_endian_at(bytes, 9, 8);
  const uint64_t type = little_endian_at(bytes, 17, 1);
  const uint64_t sequences = little_endian_at(bytes, 18, 8);
  if (version != 1) return Error{EINVAL, fmt::format("has the unknown version {}", version)};
  if (type == 0 || type >= kTokenBytes.size())
    return Error{EINVAL, fmt::format("has tokens of the unknown type {}", type)};
  if (sequences >= UINT32_MAX) return Error{EINVAL, "has more sequences than 32 bits can number"};
  if (sequences * 12 > file_size - kMegatronHeader) return Error{EINVAL, "is cut off"};
  return MegatronHeader{kTokenBytes[type], sequences};
}

}  // namespace

Result<std::vector<MegatronFiles>> find_megatron_files(const DatasetSource& source, const DatasetRoot& root,
                                                       std::string_view file) {
  const auto files = find_data_files(source, root, file);
  if (!files) return files.error();
  std::vector<MegatronFiles> found;
  for (const FileId data : *files) {
    const std::string path = source.catalog->path(data);
    if (!path.ends_with(".bin")) return wrong_file(source, data, "is not named .bin");
    const auto index = source.catalog->find(path.substr(0, path.size() - 4) + ".idx");
    if (!index || source.catalog->kind(*index) != Catalog::Kind::file)
      return wrong_file(
          source, data,
          "has no .idx file beside it; if it is not Megatron's, want record=BYTES or format=npy");
    found.push_back({data, *index});
  }
  return found;
}

Status for_each_sequence(const DatasetSource& source, FileId index,
                         const std::function<Status(const MegatronSequence&)>& visit) {
  const auto refuse = [&](std::string_view why) { return wrong_file(source, index, why); };
  const uint64_t size = source.catalog->stamp(index).size;
  const ByteRange start{index, 0, std::min(size, kMegatronHeader)};
  const auto first = start.length == 0 ? std::vector<std::string>(1) : source.read_all({&start, 1});
  if (!first) return first.error();
  const Result<MegatronHeader> header = parse_megatron_header(first->front(), size);
  if (!header) return refuse(header.error().message);
  const uint64_t places = kMegatronHeader + 4 * header->sequences;
  for (uint64_t done = 0; done < header->sequences; done += kSequencesAtOnce) {
    const uint64_t count = std::min(kSequencesAtOnce, header->sequences - done);
    const std::array<ByteRange, 2> pieces{ByteRange{index, kMegatronHeader + 4 * done, 4 * count},
                                          ByteRange{index, places + 8 * done, 8 * count}};
    const auto read = source.read_all(pieces);
    if (!read) return read.error();
    const std::string& lengths = (*read)[0];
    const std::string& offsets = (*read)[1];
    if (lengths.size() != 4 * count || offsets.size() != 8 * count) return refuse("is cut off");
    if (source.work) source.work->note(done + count, header->sequences);
    for (uint64_t i = 0; i < count; ++i) {
      const MegatronSequence sequence{little_endian_at(offsets, 8 * i, 8),
                                      static_cast<uint32_t>(little_endian_at(lengths, 4 * i, 4)),
                                      static_cast<uint32_t>(header->token_bytes)};
      if (Status status = visit(sequence); !status) return status;
    }
  }
  return {};
}

}  // namespace clairfs
