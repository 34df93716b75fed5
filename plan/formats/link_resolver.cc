#include "plan/formats/link_resolver.h"

#include <algorithm>

#include <limits.h>
#include <sys/stat.h>

namespace clairfs {
namespace {

bool is_system_directory(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Takes the first component off `rest`, with the slashes around it; `slash` tells whether some followed it.
std::string take_component(std::string& rest, bool& slash) {
  const size_t begin = std::min(rest.find_first_not_of('/'), rest.size());
  const size_t end = std::min(rest.find('/', begin), rest.size());
  std::string component = rest.substr(begin, end - begin);
  slash = end < rest.size();
  rest.erase(0, std::min(rest.find_first_not_of('/', end), rest.size()));
  return component;
}

std::vector<std::string> components(std::string path) {
  std::vector<std::string> parts;
  for (bool slash = false; !path.empty();) {
    std::string part = take_component(path, slash);
    if (!part.empty() && part != ".") parts.push_back(std::move(part));
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string path;
  for (const std::string& part : parts) path += "/" + part;
  return path;
}

}  // namespace

LinkResolver::LinkResolver(const Catalog& catalog, const LinkPrefixes& prefixes)
    : catalog_(catalog), is_directory_(prefixes.is_directory ? prefixes.is_directory : is_system_directory) {
  for (const std::string& prefix : {prefixes.mount, prefixes.source}) {
    if (prefix.starts_with('/')) roots_.push_back(components(prefix));
  }
  const size_t above = roots_.empty() ? 0 : joined(roots_.front()).size() + 1;
  longest_path_ = PATH_MAX - 1 - std::min<size_t>(above, PATH_MAX - 1);
}

bool LinkResolver::inside(std::string_view absolute, std::string& rest) const {
  std::vector<std::string> at;
  std::string remaining(absolute);
  while (std::find(roots_.begin(), roots_.end(), at) == roots_.end()) {
    if (remaining.empty()) return false;
    bool slash = false;
    const std::string part = take_component(remaining, slash);
    if (part == "..") {
      if (!at.empty()) at.pop_back();
    } else if (!part.empty() && part != ".") {
      at.push_back(part);
    }
  }
  rest = std::move(remaining);
  return true;
}

Resolved LinkResolver::outside(const std::string& path, uint32_t links) const {
  const bool directory = !path.empty() && is_directory_(path);
  return {directory ? Resolved::Kind::outside_directory : Resolved::Kind::outside, FileId(), links, path};
}

Resolved LinkResolver::resolve(FileId from, std::string_view path, uint32_t links) const {
  std::string rest(path);
  FileId at = from;
  if (rest.starts_with('/') && !inside(path, rest)) return outside(rest, links);
  if (path.starts_with('/')) at = FileId(0);
  while (!rest.empty()) {
    bool slash = false;
    const std::string part = take_component(rest, slash);
    if (part.empty() || part == ".") continue;
    if (part == ".." && at != FileId(0)) {
      at = catalog_.parent(at);
      continue;
    }
    std::string absolute;  // set when the walk goes on from the machine's root
    if (part == "..") {
      if (roots_.empty()) return outside("", links);
      const std::vector<std::string>& root = roots_.front();
      if (root.empty()) continue;  // "/.." is "/"
      absolute = joined({root.begin(), root.end() - 1}) + "/" + rest;
    } else {
      const std::optional<FileId> child = catalog_.lookup(at, part);
      if (!child) return {Resolved::Kind::missing, FileId(), links, ""};
      const Catalog::Kind kind = catalog_.kind(*child);
      if (kind == Catalog::Kind::file) {
        return {slash ? Resolved::Kind::missing : Resolved::Kind::file, *child, links, ""};
      }
      if (kind == Catalog::Kind::directory) {
        at = *child;
        continue;
      }
      if (++links > kMaxLinks) return {Resolved::Kind::loop, FileId(), links, ""};
      std::string target(catalog_.symlink_target(*child));
      if (slash) target += "/" + rest;
      (target.starts_with('/') ? absolute : rest) = std::move(target);
    }
    if (absolute.empty()) continue;
    if (!inside(absolute, rest)) return outside(absolute, links);
    at = FileId(0);
  }
  return {Resolved::Kind::directory, at, links, ""};
}

}  // namespace clairfs
