#include "plan/inference/seeds/usual_seeds.h"

namespace clairfs {
namespace {

// 3407: arXiv 2109.08203. 5489: the default of MT19937. Years: those of
// the projects. 0xC0FFEE and the like: what hexadecimal digits spell.
constexpr uint64_t kUsualSeeds[] = {
    42,       0,        1,       1234,       1337,       2,          3,          123,       3407,
    7,        10,       100,     2020,       2021,       2022,       2023,       2024,      2025,
    2026,     2027,     2028,    2029,       2030,       2019,       2018,       4,         5,
    6,        8,        9,       11,         12,         13,         21,         99,        777,
    999,      1000,     12345,   31415,      1111,       3141,       5489,       123456,    666,
    69,       77,       88,      111,        222,        314,        420,        421,       888,
    2017,     2016,     31337,   4321,       54321,      4242,       424242,     1024,      65535,
    65536,    10000,    1000000, 1234567,    12345678,   123456789,  1234567890, 987654321, 98765,
    2222,     6666,     8888,    9999,       1984,       314159,     3141592,    271828,    8675309,
    19260817, 0xC0FFEE, 0xCAFE,  0xCAFEBABE, 0xDEADBEEF, 2147483647, 4294967295};

}  // namespace

std::span<const uint64_t> usual_seeds() {
  return kUsualSeeds;
}

}  // namespace clairfs
