#include "plan/formats/npy_header.h"

#include <cerrno>
#include <random>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::string file_start(const std::string& dictionary, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) bytes += static_cast<char>(dictionary.size() >> (8 * i));
  return bytes + dictionary;
}

std::string refusal(const std::string& start) {
  const auto header = parse_npy_header(start);
  INFO(start);
  REQUIRE(!header);
  CHECK(header.error().code == EINVAL);
  return header.error().message;
}

}  // namespace

TEST_CASE("headers as NumPy writes them are read") {
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4, 5), }          \n";
  for (int version : {1, 2, 3}) {
    const auto header = parse_npy_header(file_start(text, version) + "data");
    REQUIRE(header);
    CHECK(header->data_offset == file_start(text, version).size());
    CHECK(header->item_bytes == 4);
    CHECK(header->shape == std::vector<uint64_t>{3, 4, 5});
  }
  const auto bytes_of = [](const std::string& descr) {
    return parse_npy_header(file_start("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (1,)}"))
        ->item_bytes;
  };
  CHECK(bytes_of("|u1") == 1);
  CHECK(bytes_of(">i8") == 8);
  CHECK(bytes_of("<c16") == 16);
  CHECK(bytes_of("<U7") == 28);
  CHECK(bytes_of("|S7") == 7);
  CHECK(bytes_of("|b1") == 1);
  CHECK(bytes_of("<M8[ns]") == 8);
  CHECK(parse_npy_header(file_start("{'shape': (), 'fortran_order': False, 'descr': '<f4'}"))->shape.empty());
  CHECK(parse_npy_header(file_start("{'shape': (7L,), 'fortran_order': False, 'descr': '<f4'}"))->shape[0] ==
        7);
}

TEST_CASE("what has no rows in place is refused with its reason") {
  const auto with = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return refusal(
        file_start("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }"));
  };
  CHECK(with("'<f4'", "True", "(3, 4)").find("Fortran") != std::string::npos);
  CHECK(with("'|O'", "False", "(3,)").find("objects") != std::string::npos);
  CHECK(with("[('a', '<f4')]", "False", "(3,)").find("structured") != std::string::npos);
  CHECK(with("'<q4'", "False", "(3,)").find("type") != std::string::npos);
  CHECK(with("'<f99999999999'", "False", "(3,)").find("type") != std::string::npos);
  CHECK(with("'<f4'", "False", "(-3,)").find("shape") != std::string::npos);
  CHECK(with("'<f4'", "False", "(3 4)").find("shape") != std::string::npos);
  CHECK(with("'<f4'", "False", "3").find("tuple") != std::string::npos);
  CHECK(with("'<f4'", "Maybe", "(3,)").find("fortran_order") != std::string::npos);
  CHECK(refusal(file_start("{'descr': '<f4'}")).find("lacks") != std::string::npos);
  CHECK(refusal(file_start("[1, 2, 3, 4]")).find("dictionary") != std::string::npos);
  CHECK(refusal(file_start("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x")).find("after") !=
        std::string::npos);
  CHECK(refusal("\x93NUMPY\x04").find("array file") != std::string::npos);
  CHECK(refusal("\x93NUMPY\x04 1234567").find("version") != std::string::npos);
  CHECK(refusal(std::string("PK\x03\x04, a zip file")).find("array file") != std::string::npos);
  CHECK(refusal(file_start("{'descr': '<f4'", 1).substr(0, 14)).find("ends inside") != std::string::npos);
  CHECK(refusal(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12)).find("header of") != std::string::npos);
}

TEST_CASE("damaged headers never crash") {
  const std::string good = file_start("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n");
  std::mt19937 random(11);
  size_t refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bad = good;
    for (uint32_t i = 1 + random() % 3; i > 0; --i) bad[random() % bad.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    const auto header = parse_npy_header(bad);
    if (!header) {
      ++refused;
    } else {
      CHECK(header->data_offset <= bad.size());
    }
  }
  CHECK(refused > 1000);
}
