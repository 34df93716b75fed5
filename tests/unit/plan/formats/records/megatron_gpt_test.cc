#include "plan/formats/records/megatron_gpt.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>

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
std::vector<std::vector<uint32_t>> tokens_of(const DatasetSource& source, const std::string& plan,
                                             uint32_t seed = 1234) {
  const auto index = make_sample_index(
      parse_plan(fmt::format("format=megatron file=a.bin seed={} {}", seed, plan)).value(), source);
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

/// As numpy.save() writes an array of whole numbers; type "<i4" or the like.
std::string npy_bytes(const std::string& type, const std::string& shape,
                      const std::vector<uint64_t>& numbers) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string bytes = std::string("\x93NUMPY\x01\0", 8) + little_endian_bytes(header.size(), 2) + header;
  for (const uint64_t number : numbers) bytes += little_endian_bytes(number, type.back() - '0');
  return bytes;
}

/// GPTDataset's three indexes, as numbers, for documents of which none is empty.
struct Indexes {
  Indexes(const std::vector<uint32_t>& lengths, uint64_t length, uint64_t epochs, bool separate,
          uint32_t seed) {
    Mt19937 random(seed);
    const auto count = static_cast<uint32_t>(lengths.size());
    std::vector<GptPlace> row;  // of each token
    for (const uint32_t document : gpt_document_index(0, count, epochs, separate, random)) {
      for (uint32_t i = 0; i < lengths[document]; ++i)
        row.push_back({static_cast<uint32_t>(documents.size()), i});
      documents.push_back(document);
    }
    const uint64_t samples = (row.size() - 1) / length;
    const uint64_t first = separate ? (row.size() / epochs * (epochs - 1) - 1) / length : samples;
    for (uint64_t sample = 0; sample <= samples; ++sample) {
      places.push_back(row[sample * length].document);
      places.push_back(row[sample * length].token);
    }
    for (const uint32_t sample : gpt_shuffle_index(first, samples, random)) shuffled.push_back(sample);
  }

  /// As Megatron saves them, with PREFIX before document_index.npy and so on.
  void save(const TempTree& tree, const std::string& prefix, const std::string& place_type = "<i4",
            const std::string& shuffle_type = "<u4") const {
    const auto write = [&](const char* name, const std::string& bytes) {
      tree.write(prefix + name, 0);
      std::ofstream(tree.at(prefix + name), std::ios::binary) << bytes;
    };
    write("document_index.npy", npy_bytes("<i4", fmt::format("({},)", documents.size()), documents));
    write("sample_index.npy", npy_bytes(place_type, fmt::format("({}, 2)", places.size() / 2), places));
    write("shuffle_index.npy", npy_bytes(shuffle_type, fmt::format("({},)", shuffled.size()), shuffled));
  }

  std::vector<uint64_t> documents;
  std::vector<uint64_t> places;  ///< two numbers each
  std::vector<uint64_t> shuffled;
};

const std::vector<uint32_t> kLengths{7, 1, 30, 2, 2, 19, 5, 44, 1, 3, 12, 8};  // 134 tokens

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
  const std::vector<uint32_t>& lengths = kLengths;
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

TEST_CASE("GPT samples are the same computed and read from the indexes that Megatron saved") {
  const TempTree tree;
  write_documents(tree, kLengths);
  Indexes(kLengths, 10, 1, false, 99).save(tree, "one/c0ffee-GPTDataset-train-");
  Indexes(kLengths, 10, 2, true, 99).save(tree, "two/c0ffee-GPTDataset-train-", "<i8", "<i8");
  Indexes(kLengths, 10, 1, false, 7).save(tree, "two/c0ffee-GPTDataset-valid-");
  Indexes(kLengths, 133, 1, false, 99).save(tree, "old/c0ffee-GPTDataset-");
  const DatasetSource source = scanned(tree);
  const auto one_epoch = tokens_of(source, "sequence_length=10", 99);
  REQUIRE(one_epoch != tokens_of(source, "sequence_length=10"));
  CHECK(tokens_of(source, "sequence_length=10 cache=one") == one_epoch);
  CHECK(tokens_of(source, "sequence_length=10 cache=two") ==
        tokens_of(source, "sequence_length=10 train_samples=15", 99));
  CHECK(tokens_of(source, "sequence_length=133 cache=old") == tokens_of(source, "sequence_length=133", 99));
  CHECK(tokens_of(source, "sequence_length=10 cache=two/c0ffee-GPTDataset-valid-document_index.npy") ==
        tokens_of(source, "sequence_length=10", 7));
  const auto spec =
      parse_plan("format=megatron file=a.bin sampler=megatron.sequential sequence_length=10 cache=one");
  REQUIRE(spec);  // no seed
  const auto index = make_sample_index(*spec, source);
  REQUIRE(index);
  CHECK((*index)->shared_ranges().size() == 4);
}

TEST_CASE("an empty document is none in the indexes that Megatron saved") {
  const TempTree tree;
  write_documents(tree, {0, 4, 0, 3});
  const auto saved = [&](const std::vector<uint64_t>& documents, const std::vector<uint64_t>& places) {
    Indexes indexes({4, 3}, 2, 1, false, 1);
    indexes.documents = documents;
    indexes.places = places;
    indexes.shuffled = {1, 0, 2};
    indexes.save(tree, "c/x-");
    return tokens_of(scanned(tree), "sequence_length=2 cache=c");
  };
  const std::vector<std::vector<uint32_t>> expected{{2, 3, 4}, {0, 1, 2}, {4, 5, 6}};
  CHECK(saved({0, 1, 2, 3}, {0, 0, 1, 2, 3, 0, 3, 2}) == expected);
}

TEST_CASE("saved indexes that cannot be are refused") {
  const TempTree tree;
  write_documents(tree, kLengths);
  const Indexes good(kLengths, 10, 1, false, 1);
  const auto refused = [&](const std::string& keys) {
    const std::string message =
        gpt_refusal(scanned(tree), "sampler=megatron.sequential sequence_length=10 " + keys);
    CHECK(message.find('\n') == std::string::npos);
    return message;
  };
  const auto damaged = [&](const std::function<void(Indexes&)>& damage, const char* place_type = "<i4") {
    Indexes bad = good;
    damage(bad);
    bad.save(tree, "c/x-", place_type);
    return refused("cache=c");
  };
  CHECK_THAT(refused("cache=none"), Contains("cache=none: no document_index.npy"));
  CHECK_THAT(refused("cache=one train_samples=5"), Contains("want either these or cache"));
  good.save(tree, "several/x-");
  good.save(tree, "several/y-");
  CHECK_THAT(refused("cache=several"), Contains("there are 2 document_index.npy"));
  std::filesystem::remove(tree.at("several/y-shuffle_index.npy"));
  CHECK_THAT(refused("cache=several/y-document_index.npy"), Contains("has no shuffle_index.npy beside it"));

  CHECK_THAT(damaged([](Indexes& bad) { bad.documents[3] = 12; }),
             Contains("documents that the .idx has not"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.documents[3] = 0xFFFFFFFF; }), Contains("the .idx has not"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.documents = {}; }), Contains("is empty"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.places.back() += 1; }), Contains("c/x-sample_index.npy"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.places[1] = 50; }),
             Contains("tokens that the documents have not"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.places[2] = 12; }),
             Contains("tokens that the documents have not"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.places[4] = bad.places[5] = 0; }, "<i8"),
             Contains("c/x-sample_index.npy"));  // it goes back
  CHECK_THAT(damaged([](Indexes& bad) { bad.places.resize(2); }), Contains("has no sample"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.shuffled[2] = 13; }), Contains("is no permutation"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.shuffled[2] = bad.shuffled[3]; }), Contains("is no permutation"));
  CHECK_THAT(damaged([](Indexes& bad) { bad.shuffled.pop_back(); }), Contains("another number of samples"));
  CHECK_THAT(damaged([](Indexes&) {}, "<f4"), Contains("other numbers than Megatron's"));
  good.save(tree, "c/x-");
  REQUIRE(tokens_of(scanned(tree), "sequence_length=10 cache=c").size() == 13);
  CHECK_THAT(gpt_refusal(scanned(tree), "seed=1 sequence_length=9 cache=c"), Contains("sequence_length=9"));
  const std::string sample_index = tree.at("c/x-sample_index.npy");
  std::filesystem::resize_file(sample_index, std::filesystem::file_size(sample_index) - 1);
  CHECK_THAT(refused("cache=c"), Contains("is cut off"));
  std::filesystem::resize_file(sample_index, 0);
  CHECK_THAT(refused("cache=c"), Contains("is damaged: npy: no NumPy array file"));
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
