// What the catalog costs: memory a file, seconds to scan and to reload, against a plain `find` over the same
// tree.
//
//   catalog_bench [FILES]    default 1,000,000 empty files, 1,000 a directory, below $TMPDIR; removed at the
//   end
//
// The tree is walked once before, so that all figures are with a warm dentry cache; each is the best of
// three.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/null_sink.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cache/base/fd.h"
#include "cache/catalog/check.h"
#include "cache/catalog/chunk_key.h"
#include "cache/catalog/file.h"
#include "cache/catalog/image.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

constexpr int kPerDirectory = 1000;

template <class Body>
double best_of_three(Body&& body) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void fill(const TempTree& tree, int files) {
  for (int d = 0; d * kPerDirectory < files; ++d) {
    const std::string name = fmt::format("n{:08}", d);
    tree.make_directory(name);
    const Fd directory(::open(tree.at(name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int i = d * kPerDirectory; i < std::min(files, (d + 1) * kPerDirectory); ++i) {
      const std::string file = fmt::format("n{:08}_{:08}.JPEG", d, i);  // as in ImageNet: all names differ
      const Fd made(::openat(directory.get(), file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
      if (!made) throw std::runtime_error("cannot make " + file);
    }
  }
}

void find_everything(const std::string& top) {
  const std::string command = "find '" + top + "' -printf '%s %T@ %C@ %m %U %G %i %p\\n' > /dev/null";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("find failed");
}

template <class T>
T required(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

void measure(const TempTree& tree, Logger& log) {
  const TempTree cache;
  CatalogOptions options;
  options.directory = cache.path();
  const double find = best_of_three([&] { find_everything(tree.path()); });
  const auto line = [&](const char* what, double seconds) {
    fmt::print("{:<44} {:8.3f} s   {:6.2f} x find\n", what, seconds, seconds / find);
  };
  line("find -printf", find);
  line("scan", best_of_three([&] { required(scan_catalog(tree.path(), options.scan, log)); }));

  const LoadedCatalog loaded = required(load_or_scan_catalog(tree.path(), options, log));
  if (loaded.saved_file.empty()) throw std::runtime_error("the catalog was not saved");
  const Catalog& catalog = *loaded.catalog;
  line("load only: read, checksum, verify",
       best_of_three([&] { required(load_catalog(loaded.saved_file)); }));
  line("  of which verify", best_of_three([&] {
         if (!catalog_image::verify(catalog.image())) throw std::runtime_error("not well-formed");
       }));
  for (const CatalogCheck check : {CatalogCheck::full, CatalogCheck::directories}) {
    options.check = check;
    const bool full = check == CatalogCheck::full;
    line(full ? "reload, check full" : "reload, check directories", best_of_three([&] {
           if (!required(load_or_scan_catalog(tree.path(), options, log)).reloaded) {
             throw std::runtime_error("scanned although nothing changed");
           }
         }));
  }
  uint64_t found = 0;
  line("lookup of every path", best_of_three([&] {
         for (FileId id(0); id.value < catalog.size(); ++id.value)
           found += catalog.find(catalog.path(id)) ? 1 : 0;
       }));
  fmt::print("{} entries, {} bytes of names; {:.1f} bytes an entry beside names, {:.1f} with them\n",
             catalog.size(), catalog.name_bytes(),
             static_cast<double>(catalog.memory_bytes() - catalog.name_bytes()) / catalog.size(),
             static_cast<double>(catalog.memory_bytes()) / catalog.size());
  if (found != 3ULL * catalog.size()) throw std::runtime_error("an entry was not found");
}

}  // namespace

int main(int argc, char** argv) {
  const int files = argc > 1 ? std::atoi(argv[1]) : 1'000'000;
  if (files <= 0) {
    fmt::print(stderr, "usage: catalog_bench [FILES]\n");
    return 2;
  }
  Logger log("bench", std::make_shared<spdlog::sinks::null_sink_mt>());
  try {
    const TempTree tree;
    fmt::print("making {} files in {}\n", files, tree.path());
    fill(tree, files);
    find_everything(tree.path());
    measure(tree, log);
  } catch (const std::exception& error) {
    fmt::print(stderr, "catalog_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
