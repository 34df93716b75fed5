// Compares paths as timm's folder reader does.
#pragma once

#include <string_view>

namespace clairfs {

/// A path in two parts: the file `name` in `folder`, which may be empty.
struct NaturalPath {
  std::string_view folder;
  std::string_view name;
};

/// natural_key(a) < natural_key(b) in Python: lower case, each run of digits one number. REQUIRES: ASCII.
bool natural_less(const NaturalPath& a, const NaturalPath& b);

/// Whether os.path.splitext() gives the name an extension that timm's reader takes, in any case of letters.
bool is_timm_image(std::string_view name);

}  // namespace clairfs
