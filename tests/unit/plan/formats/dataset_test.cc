#include "plan/formats/dataset.h"

#include <cerrno>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;

namespace {

using Paths = std::vector<std::string>;

PlanSpec spec_of(const std::string& text) {
  const auto spec = parse_plan("seed=1 " + text);
  if (!spec) FAIL(spec.error().message);
  return *spec;
}

std::shared_ptr<const SampleIndex> numbered(const DatasetSource& source, const std::string& plan) {
  INFO(plan);
  const auto index = make_sample_index(spec_of(plan), source);
  if (!index) FAIL(index.error().message);
  return *index;
}

std::string refusal(const DatasetSource& source, const std::string& plan) {
  INFO(plan);
  const auto index = make_sample_index(spec_of(plan), source);
  REQUIRE(!index);
  CHECK(index.error().code == EINVAL);
  return index.error().message;
}

// The path of the file that holds the sample's bytes; "" for a sample without any.
std::string target(const DatasetSource& source, const SampleIndex& index, uint32_t sample) {
  return index.range_count(sample) == 0 ? "" : source.catalog->path(index.range(sample, 0).file);
}

void write_text(const TempTree& tree, const std::string& path, const std::string& text) {
  tree.write(path, 0);
  std::ofstream(tree.at(path), std::ios::binary) << text;
}

}  // namespace

TEST_CASE("files: every regular file by whole path, bytewise") {
  const TempTree tree;
  for (const char* path : {"a/x", "a-b", "a/y/z", "a0", "b", "a.d/q", ".hidden", "A", "\xff", "a/x1"})
    tree.write(path, 10);
  tree.symlink("b", "link");
  tree.symlink("a", "linkdir");
  const DatasetSource source = scanned(tree);
  const auto index = numbered(source, "format=files");
  CHECK(sample_paths(*index) ==
        Paths{".hidden", "A", "a-b", "a.d/q", "a/x", "a/x1", "a/y/z", "a0", "b", "\xff"});
  CHECK(index->range(0, 0).length == 10);
  CHECK(index->format() == "files");
  CHECK(index->memory_bytes() < 1000);
  CHECK(sample_paths(*numbered(source, "format=files root=a")) == Paths{"a/x", "a/x1", "a/y/z"});
}

TEST_CASE("imagefolder and timm give the libraries' own numbering") {
  std::ifstream file(std::string(CLAIRFS_TEST_DATA) + "/golden/enumeration.json");
  const auto hex = [](const std::string& digits) {
    std::string bytes;
    for (size_t i = 0; i < digits.size(); i += 2)
      bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    return bytes;
  };
  size_t compared = 0;
  std::set<std::string> kinds;
  const nlohmann::json section = nlohmann::json::parse(file);
  for (const auto& test : section.at("cases")) {
    kinds.insert(test.at("params").at("kind").get<std::string>());
    const bool timm = test.at("params").at("kind") == "timm ReaderImageFolder";
    if (test.at("params").at("kind") != "torchvision.ImageFolder" && !timm) continue;
    INFO(test.at("id"));
    const TempTree tree;
    const auto& shape = test.at("params").at("tree");
    for (const auto& path : shape.at("files_hex")) tree.write(hex(path), 1);
    for (const auto& path : shape.at("empty_dirs")) tree.make_directory(path.get<std::string>());
    for (const auto& link : shape.at("symlinks")) tree.symlink(link[1], link[0].get<std::string>());
    const DatasetSource source = scanned(tree);
    const auto check = [&](const nlohmann::json& result, const std::string& plan) {
      if (result.contains("error")) {
        CHECK(refusal(source, plan).find("emptyclass") != std::string::npos);
      } else {
        Paths expected;
        for (const auto& sample : result.at("samples")) expected.push_back(hex(sample[0]));
        CHECK(sample_paths(*numbered(source, plan)) == expected);
      }
      ++compared;
    };
    check(test.at("result"), timm ? "format=timm" : "format=imagefolder");
    // torchvision 0.8 took empty classes; so does allow_empty.
    if (test.contains("variants")) {
      for (const auto& [environment, result] : test.at("variants").items())
        check(result, "format=imagefolder allow_empty=1");
    }
  }
  CHECK(compared == 4);
  // Keras's and DALI's own ways through a folder have no format: see the table in plan/samplers/README.md.
  CHECK(kinds == std::set<std::string>{"torchvision.ImageFolder", "timm ReaderImageFolder",
                                       "keras index_directory", "DALI FileReader, new order (MODEL, not run)",
                                       "DALI FileReader, old order (MODEL, not run)"});
}

TEST_CASE("imagefolder: bytes come from where the links lead") {
  const TempTree tree;
  tree.write("c/a.jpg", 5000);
  tree.write("c/empty.png", 0);
  tree.write("other/b.jpg", 7);
  const std::string real = std::filesystem::canonical(tree.path()).native();
  const std::string name = real.substr(real.rfind('/') + 1);
  tree.symlink("a.jpg", "c/b_same.jpg");
  tree.symlink("../other/./b.jpg", "c/c_up.jpg");
  tree.symlink(real + "/other//b.jpg", "c/d_absolute.jpg");
  tree.symlink("../../" + name + "/other/b.jpg", "c/e_out_and_back.jpg");
  tree.symlink("nowhere", "c/f_dangling.jpg");
  tree.symlink("/proc/self/status", "c/g_outside.jpg");
  tree.symlink("h_loop.jpg", "c/h_loop.jpg");
  tree.symlink("a.jpg/", "c/i_not_a_folder.jpg");
  tree.symlink("/mnt/data/other/b.jpg", "c/j_mount.jpg");
  DatasetSource source = scanned(tree);
  const auto targets = [&] {
    const auto index = numbered(source, "format=imagefolder");
    Paths paths;
    for (uint32_t i = 0; i < index->size(); ++i) paths.push_back(target(source, *index, i));
    return paths;
  };
  CHECK(targets() == Paths{"c/a.jpg", "c/a.jpg", "other/b.jpg", "other/b.jpg", "other/b.jpg", "c/empty.png",
                           "", "", "", "", "", "other/b.jpg"});
  // Through a mount elsewhere, climbing out of the dataset leads past it.
  source.prefixes.mount = "/mnt/data";
  CHECK(targets() == Paths{"c/a.jpg", "c/a.jpg", "other/b.jpg", "other/b.jpg", "", "c/empty.png", "", "", "",
                           "", "other/b.jpg", "other/b.jpg"});

  const auto index = numbered(source, "format=imagefolder");
  CHECK(index->path(3) == "c/d_absolute.jpg");
  const auto chunks_of = [&](uint32_t sample) {
    std::vector<uint32_t> chunks;
    for_each_chunk(*index, *source.catalog, sample, [&](ChunkId chunk) { chunks.push_back(chunk.value); });
    return chunks;
  };
  CHECK(chunks_of(0).size() == 2);
  CHECK(chunks_of(0) == chunks_of(1));
  CHECK(chunks_of(5).empty());
  CHECK(chunks_of(6).empty());
}

TEST_CASE("imagefolder follows a loop until the kernel stops, and no two loops for ever") {
  const TempTree tree;
  tree.write("c/a.jpg", 1);
  tree.symlink(".", "c/loop.jpg");
  DatasetSource source = scanned(tree);
  // 41 folders of one image; in the last, the link is no folder any more but a file of that name.
  const auto index = numbered(source, "format=imagefolder");
  CHECK(index->size() == 42);
  CHECK(index->path(index->size() - 1) == std::string("c") + [] {
    std::string deep;
    for (int i = 0; i < 41; ++i) deep += "/loop.jpg";
    return deep;
  }());
  tree.symlink(".", "c/again");
  CHECK(refusal(scanned(tree), "format=imagefolder").find("over and over") != std::string::npos);
}

TEST_CASE("imagefolder stops following a loop where paths become too long") {
  const TempTree tree;
  const std::string name(250, 'l');
  tree.write("c/a.jpg", 1);
  tree.symlink(".", "c/" + name);
  DatasetSource source = scanned(tree);
  source.prefixes.mount = "/m";
  // "/m/c" and k times 251 bytes fit 4095 for k = 16.
  CHECK(numbered(source, "format=imagefolder")->size() == 17);
}

TEST_CASE("imagefolder refuses what torchvision refuses, or numbers elsewhere") {
  const TempTree tree;
  tree.write("top.jpg", 1);
  CHECK(refusal(scanned(tree), "format=imagefolder").find("no class folder") != std::string::npos);
  tree.write("c/a.jpg", 1);
  tree.symlink("/usr", "outside");
  CHECK(refusal(scanned(tree), "format=imagefolder").find("outside the dataset") != std::string::npos);
  tree.remove("outside");
  tree.symlink("self", "self");
  CHECK(refusal(scanned(tree), "format=imagefolder").find("loop") != std::string::npos);
}

TEST_CASE("the format is found out") {
  const TempTree tree;
  tree.write("a/1.jpg", 1);
  tree.write("b/2.jpg", 1);
  tree.write("top.txt", 1);
  CHECK(numbered(scanned(tree), "")->format() == "imagefolder");
  tree.write("c/notes.txt", 1);
  const DatasetSource source = scanned(tree);
  CHECK(numbered(source, "")->format() == "files");
  CHECK(numbered(source, "")->size() == 4);
  CHECK(numbered(source, "n=4")->size() == 4);
  CHECK(refusal(source, "n=5").find("has 4 samples") != std::string::npos);
}

TEST_CASE("the root is a folder of the dataset") {
  const TempTree tree;
  tree.write("train/c/a.jpg", 1);
  tree.symlink("train", "current");
  tree.make_directory("void");
  DatasetSource source = scanned(tree);
  source.prefixes.mount = "/mnt/data";
  for (const char* root : {"train", "./train/", "current", "/mnt/data/train", "train/c/.."}) {
    CHECK(sample_paths(*numbered(source, std::string("root=") + root)) == Paths{"train/c/a.jpg"});
  }
  for (const char* root : {"nowhere", "..", "/etc", "train/c/a.jpg", "../../../etc"}) {
    CHECK(refusal(source, std::string("root=") + root).find("no such folder") != std::string::npos);
  }
  CHECK(refusal(source, "root=void").find("no sample") != std::string::npos);
}

TEST_CASE("list: the paths of a file, in its order") {
  const TempTree tree;
  tree.write("d/a", 3);
  tree.write("b", 4);
  tree.write("d/#c", 5);
  tree.symlink("d", "l");
  tree.symlink("/etc/hostname", "out");
  write_text(tree, "order", "# a comment\nb\r\n\nd/a\nb\n./d/#c\nl/a\nout");
  DatasetSource source = scanned(tree);
  const auto index = numbered(source, "format=list list=order");
  CHECK(sample_paths(*index) == Paths{"b", "d/a", "b", "d/#c", "d/a", "out"});
  CHECK(index->range_count(5) == 0);
  CHECK(index->range(2, 0).length == 4);
  CHECK(sample_paths(*numbered(source, R"(format=list root=d list='["#c", "a"]')")).empty() == false);

  const auto wrong = [&](const std::string& text, const char* part) {
    write_text(tree, "order", text);
    const std::string message = refusal(source, "format=list list=order");
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
  };
  wrong("b\n../etc/passwd\n", "line 2");
  wrong("b\nd/../b\n", "'..'");
  wrong("/etc/passwd\n", "relative");
  wrong("b\n\n# x\nnowhere\n", "line 4: nowhere");
  wrong("d\n", "folder");
  wrong("# nothing\n", "names no file");
  REQUIRE(::mkfifo(tree.at("pipe").c_str(), 0600) == 0);
  CHECK(refusal(source, "format=list list=pipe").find("regular file") != std::string::npos);
  const auto missing = make_sample_index(spec_of("format=list list=missing"), source);
  REQUIRE(!missing);
  CHECK(missing.error().code == ENOENT);
}

TEST_CASE("npy: a row is a byte range") {
  const TempTree tree;
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000, 3, 5), }";
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header;
  const size_t start = bytes.size();
  bytes.resize(start + 1000 * 60);
  write_text(tree, "d/x.npy", bytes);
  write_text(tree, "short.npy", bytes.substr(0, bytes.size() - 1));
  write_text(tree, "other.npy", "not an array");
  const DatasetSource source = scanned(tree);
  const auto index = numbered(source, "root=d file=x.npy");
  CHECK(index->format() == "npy");
  CHECK(index->read_block() == kBufferedBlock);
  CHECK(index->size() == 1000);
  CHECK(index->range(999, 0).offset == start + 999 * 60);
  CHECK(index->range(999, 0).length == 60);
  CHECK(index->path(7) == "d/x.npy[7]");
  size_t touched = 0;
  size_t straddling = 0;
  for (uint32_t row = 0; row < 1000; ++row) {
    size_t chunks = 0;
    for_each_chunk(*index, *source.catalog, row, [&](ChunkId chunk) {
      const ChunkRange range = source.catalog->range(chunk);
      CHECK(range.offset < index->range(row, 0).offset + 60);
      CHECK(range.offset + range.length > index->range(row, 0).offset);
      ++chunks;
    });
    touched += chunks;
    straddling += chunks == 2 ? 1 : 0;
  }
  CHECK(touched == 1000 + straddling);
  CHECK(straddling == 14);  // the inner borders of 15 chunks, none of which a row ends at
  CHECK(refusal(source, "file=short.npy").find("cut off") != std::string::npos);
  CHECK(refusal(source, "file=other.npy").find("no NumPy") != std::string::npos);
  CHECK(refusal(source, "file=none.npy").find("no such file") != std::string::npos);
  CHECK(refusal(source, "format=npy file=d").find("root, but a folder") != std::string::npos);
  CHECK(refusal(source, "file=d/*.npy").find("want one file, no pattern") != std::string::npos);
}
