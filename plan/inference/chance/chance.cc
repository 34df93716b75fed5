#include "plan/inference/chance/chance.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace clairfs {
namespace {

// ln(n!). Its error, 1e-16 of 1e11 where n is 2^32, is nothing beside the chances that are told apart.
double log_factorial(uint64_t n) {
  int sign = 0;  // std::lgamma() writes it to a global variable
  return ::lgamma_r(static_cast<double>(n) + 1, &sign);
}

double log_choose(uint64_t n, uint64_t k) {
  return log_factorial(n) - log_factorial(k) - log_factorial(n - k);
}

// ln(e^a + e^b).
double log_sum(double a, double b) {
  const double larger = std::max(a, b);
  return std::isinf(larger) ? larger : larger + std::log1p(std::exp(std::min(a, b) - larger));
}

double log_of_exactly(const Draw& draw, uint64_t explained) {
  return log_choose(draw.reach, explained) + log_choose(draw.n - draw.reach, draw.seen - explained) -
         log_choose(draw.n, draw.seen);
}

// The fewest that any order explains: the rest of the dataset may not have room for the others.
uint64_t fewest(const Draw& draw) {
  const uint64_t elsewhere = draw.n - draw.reach;
  return draw.seen > elsewhere ? draw.seen - elsewhere : 0;
}

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

}  // namespace

double log_chance(const Draw& draw, uint64_t explained) {
  if (explained <= fewest(draw)) return 0;
  double sum = kImpossible;
  for (uint64_t e = std::min(draw.reach, draw.seen); e >= explained; --e)
    sum = log_sum(sum, log_of_exactly(draw, e));
  return std::min(sum, 0.0);
}

std::optional<uint64_t> explained_needed(const Draw& draw, double orders) {
  const double most = std::log(kMostWrongLocks) - std::log(orders);
  std::optional<uint64_t> needed;
  double sum = kImpossible;
  for (uint64_t e = std::min(draw.reach, draw.seen); e > fewest(draw); --e) {
    sum = log_sum(sum, log_of_exactly(draw, e));
    if (sum >= most) break;
    needed = e;
  }
  return needed;
}

}  // namespace clairfs
