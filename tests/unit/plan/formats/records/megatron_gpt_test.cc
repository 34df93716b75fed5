#include "plan/formats/records/megatron_gpt.h"

#include <filesystem>
#include <fstream>

#include "plan/formats/dataset.h"
#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/golden.h"

using namespace clairfs;

namespace {

std::string little_endian_bytes(uint64_t number, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

/// A pair of files with documents of these lengths; tokens of two bytes count on from 0.
void write_documents(const TempTree& tree, const std::vector<uint32_t>& lengths) {
  std::string tokens;
  std::string sizes;
  std::string places;
  for (const uint32_t length : lengths) {
    sizes += little_endian_bytes(length, 4);
    places += little_endian_bytes(tokens.size(), 8);
    for (uint32_t i = 0; i < length; ++i) tokens += little_endian_bytes(tokens.size() / 2, 2);
  }
  tree.write("a.bin", 0);
  tree.write("a.idx", 0);
  std::ofstream(tree.at("a.bin"), std::ios::binary) << tokens;
  std::ofstream(tree.at("a.idx"), std::ios::binary)
      << std::string("MMIDIDX\0\0", 9) << little_endian_bytes(1, 8) << little_endian_bytes(8, 1)
      << little_endian_bytes(lengths.size(), 8) << little_endian_bytes(lengths.size() + 1, 8) << sizes
      << places;
}

/// The tokens of each sample, read through its ranges.
std::vector<std::vector<uint32_t>> tokens_of(const DatasetSource& source, const std::string& plan) {
  const auto index =
      make_sample_index(parse_plan("format=megatron file=a.bin seed=1234 " + plan).value(), source);
  INFO((index ? "" : index.error().message));
  REQUIRE(index);
  std::vector<std::vector<uint32_t>> all((*index)->size());
  for (uint32_t sample = 0; sample < all.size(); ++sample) {
    for (uint32_t piece = 0; piece < (*index)->range_count(sample); ++piece) {
      const ByteRange range = (*index)->range(sample, piece);
      const std::string bytes =
          source.read_bytes(range.file, range.offset, static_cast<uint32_t>(range.length)).value();
      for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
        all[sample].push_back(static_cast<uint8_t>(bytes[i]) | uint32_t{static_cast<uint8_t>(bytes[i + 1])}
                                                                   << 8);
      }
    }
  }
  return all;
}

std::string gpt_refusal(const DatasetSource& source, const std::string& plan) {
  const auto spec = parse_plan("format=megatron file=a.bin " + plan);
  if (!spec) return spec.error().message;
  const auto index = make_sample_index(*spec, source);
  REQUIRE(!index);
  return index.error().message;
}

/// GPTDataset's samples, from the definition: each has `length` tokens and the next one of all documents laid
/// end to end in the order of the document index.
std::vector<std::vector<uint32_t>> expected_samples(const std::vector<uint32_t>& lengths, uint32_t documents,
                                                    uint64_t length, uint64_t epochs, bool separate) {
  Mt19937 random(1234);
  std::vector<uint32_t> starts{0};
  for (const uint32_t size : lengths) starts.push_back(starts.back() + size);
  std::vector<uint32_t> row;
  for (const uint32_t document : gpt_document_index(0, documents, epochs, separate, random)) {
    for (uint32_t i = 0; i < lengths[document]; ++i) row.push_back(starts[document] + i);
  }
  const uint64_t samples = (row.size() - 1) / length;
  const uint64_t first = separate ? (row.size() / epochs * (epochs - 1) - 1) / length : samples;
  std::vector<std::vector<uint32_t>> all;
  for (const uint32_t sample : gpt_shuffle_index(first, samples, random)) {
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(sample * length);
    all.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(length) + 1);
  }
  return all;
}

}  // namespace

TEST_CASE("Megatron's document and shuffle indices") {
  size_t checked = 0;
  for (const auto& test : golden::cases("frameworks")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "megatron_index") continue;
    INFO(test.at("id"));
    Mt19937 random(static_cast<uint32_t>(std::stoul(params.at("seed").get<std::string>())));
    CHECK(golden::same_sequence(test.at("result").at("document_index"),
                                gpt_document_index(0, params.at("documents"), params.at("num_epochs"),
                                                   params.at("separate_final_epoch"), random)));
    CHECK(
        golden::same_sequence(test.at("result").at("shuffle_index"),
                              gpt_shuffle_index(params.at("num_samples"), params.at("total_size"), random)));
    ++checked;
  }
  CHECK(checked == 2);
}

TEST_CASE("GPT samples span documents, and count as many epochs as training asks for") {
  const TempTree tree;
  const std::vector<uint32_t> lengths{7, 1, 30, 2, 2, 19, 5, 44, 1, 3, 12, 8};  // 134 tokens
  write_documents(tree, lengths);
  const DatasetSource source = scanned(tree);
  CHECK(tokens_of(source, "sequence_length=10") == expected_samples(lengths, 12, 10, 1, false));
  CHECK(tokens_of(source, "seq_length=133") == expected_samples(lengths, 12, 133, 1, false));
  CHECK(tokens_of(source, "sequence_length=1") == expected_samples(lengths, 12, 1, 1, false));
  // 13 samples an epoch. 25 need most of the second one, 15 so little that it is shuffled by itself.
  CHECK(tokens_of(source, "sequence_length=10 train_samples=25") ==
        expected_samples(lengths, 12, 10, 2, false));
  CHECK(tokens_of(source, "sequence_length=10 train_samples=15") ==
        expected_samples(lengths, 12, 10, 2, true));
  CHECK(tokens_of(source, "sequence_length=10 train_samples=13") ==
        expected_samples(lengths, 12, 10, 1, false));
  // Half of the documents, 61 tokens.
  CHECK(tokens_of(source, "sequence_length=10 split=1,1") == expected_samples(lengths, 6, 10, 1, false));
}

TEST_CASE("splits are rounded as Python rounds") {
  CHECK(gpt_training_documents("969,30,1", 1000).value().count == 969);
  CHECK(gpt_training_documents("1,1", 5).value().count == 2);  // 2.5, to the even one
  CHECK(gpt_training_documents("1,1", 7).value().count == 4);
  CHECK(gpt_training_documents("1", 7).value().count == 7);
  CHECK(gpt_training_documents("0.5,0.25,0.25", 8).value().count == 4);
  for (const char* split : {"", ",", "1,", "0,1", "1,1,1,1", "x", "1;1"}) {
    INFO(split);
    CHECK_FALSE(gpt_training_documents(split, 10));
  }
}

TEST_CASE("GPT samples that cannot be") {
  const TempTree tree;
  write_documents(tree, {4, 0, 3});
  const DatasetSource source = scanned(tree);
  CHECK(gpt_refusal(source, "seed=1 sequence_length=7").find("not enough tokens") != std::string::npos);
  CHECK(gpt_refusal(source, "seed=-1 sequence_length=3").find("--seed") != std::string::npos);
  CHECK(gpt_refusal(source, "shuffle=false sequence_length=3").find("seed: missing") != std::string::npos);
  CHECK(gpt_refusal(source, "seed=1 split=1,1").find("sequence_length: missing") != std::string::npos);
  CHECK(gpt_refusal(source, "seed=1 sequence_length=1 train_samples=4000000000").find("too many") !=
        std::string::npos);
  CHECK(tokens_of(source, "sequence_length=2").size() == 3);
  std::filesystem::resize_file(tree.at("a.bin"), 12);  // of seven tokens of two bytes
  const std::string cut = gpt_refusal(scanned(tree), "seed=1 sequence_length=2");
  CHECK(cut.find("more tokens than its .bin has") != std::string::npos);
}
