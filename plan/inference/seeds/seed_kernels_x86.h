// The kernels of seed_kernels.h for x86-64. On other CPUs nothing of it can be had.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clairfs {

bool cpu_has_avx2();
bool cpu_has_avx512();

/// As FirstOutputs. REQUIRES: cpu_has_...().
void first_outputs_avx2(const uint32_t* seeds, size_t count, uint32_t* out);
void first_outputs_avx512(const uint32_t* seeds, size_t count, uint32_t* out);

}  // namespace clairfs
