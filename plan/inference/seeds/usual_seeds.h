// Seeds that people like.
#pragma once

#include <cstdint>
#include <span>

namespace clairfs {

/// Seeds of papers, books, templates and jokes, each once, the likeliest first: what scripts give to
/// torch.manual_seed() and to samplers. Some are larger than a library takes.
std::span<const uint64_t> usual_seeds();

}  // namespace clairfs
