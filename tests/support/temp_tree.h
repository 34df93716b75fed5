// A directory tree for one test, gone with the test.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace clairfs {

/// Makes an empty directory below the system's temporary one (mode 0755, so that other users can look into
/// it) and removes it with all that is in it. Relative paths may hold any bytes; parents are made as needed.
/// Throws when something cannot be made. Not thread-safe.
class TempTree {
 public:
  TempTree() : path_((std::filesystem::temp_directory_path() / "clairfs-test-XXXXXX").native()) {
    if (::mkdtemp(path_.data()) == nullptr || ::chmod(path_.c_str(), 0755) != 0) {
      throw std::runtime_error("cannot make " + path_);
    }
  }
  TempTree(const TempTree&) = delete;
  TempTree& operator=(const TempTree&) = delete;
  ~TempTree() {
    // rm copes with trees deeper than the limits of descriptors and path lengths.
    std::string program = "rm";
    std::string options = "-rf";
    std::string end = "--";
    char* const arguments[] = {program.data(), options.data(), end.data(), path_.data(), nullptr};
    pid_t child = 0;
    if (::posix_spawnp(&child, "rm", nullptr, nullptr, arguments, environ) == 0) ::waitpid(child, nullptr, 0);
  }

  const std::string& path() const { return path_; }
  std::string at(std::string_view relative) const { return path_ + "/" + std::string(relative); }

  void make_directory(std::string_view relative) const { std::filesystem::create_directories(at(relative)); }
  /// A file of `size` bytes, contents(size, seed); replaced in place if it is there.
  void write(std::string_view relative, size_t size, uint32_t seed = 0) const {
    const std::filesystem::path file = at(relative);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    const std::string bytes = contents(size, seed);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + file.native());
  }
  void symlink(const std::string& target, std::string_view relative) const {
    std::filesystem::create_symlink(target, at(relative));
  }
  void hard_link(std::string_view existing, std::string_view relative) const {
    std::filesystem::create_hard_link(at(existing), at(relative));
  }
  void remove(std::string_view relative) const { std::filesystem::remove_all(at(relative)); }
  void rename(std::string_view from, std::string_view to) const { std::filesystem::rename(at(from), at(to)); }

  /// Pseudo-random bytes, the same for the same arguments; a shorter one is a prefix of a longer one.
  static std::string contents(size_t size, uint32_t seed = 0) {
    std::string bytes(size, '\0');
    std::mt19937 random(seed);
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  }

 private:
  std::string path_;
};

}  // namespace clairfs
