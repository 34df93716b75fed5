// The header of a NumPy array file (numpy/lib/format.py, format versions 1.0 to 3.0).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// Bytes from which parse_npy_header() finds the header's length: magic, version, length.
inline constexpr uint32_t kNpyPreamble = 12;
/// np.load() itself refuses headers above 10,000 characters unless told to trust the file.
inline constexpr uint32_t kMaxNpyHeader = 64 << 10;

struct NpyHeader {
  uint64_t data_offset = 0;     ///< bytes from the start of the file to the first element
  std::string type;             ///< of an element, as NumPy writes it: "<i4"
  uint64_t item_bytes = 0;      ///< bytes of an element
  std::vector<uint64_t> shape;  ///< C order
};

/// Bytes of the file up to its data. `preamble` holds its first kNpyPreamble bytes. Errors: EINVAL with the
/// cause.
Result<uint32_t> npy_header_end(std::string_view preamble);

/// Reads the header. `start` holds the file's first npy_header_end() bytes. Errors: EINVAL with the cause;
/// Fortran order, Python objects and structured elements are refused.
Result<NpyHeader> parse_npy_header(std::string_view start);

}  // namespace clairfs
