#include "cache/base/metrics.h"

#include <set>
#include <string>

#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

TEST_CASE("every metric has a name of its own and a text") {
  std::set<std::string> paths;
  for (const MetricInfo& info : metric_table()) {
    INFO(info.path);
    CHECK(paths.insert(info.path).second);
    CHECK(std::string(info.help).size() > 5);
  }
}

TEST_CASE("a histogram puts a duration into the bucket that bounds it") {
  Histogram histogram;
  histogram.record(0ns);
  histogram.record(1us);
  histogram.record(3us);
  histogram.record(4us);
  histogram.record(5us);
  CHECK(histogram.bucket(0) == 2);
  CHECK(histogram.bucket(2) == 2);
  CHECK(histogram.bucket(3) == 1);
  CHECK(histogram.count() == 5);
  CHECK(histogram.quantile_seconds(0.5) == Approx(4e-6));
  CHECK(histogram.quantile_seconds(1.0) == Approx(8e-6));
  histogram.record(24h);
  CHECK(histogram.bucket(Histogram::kBuckets - 1) == 1);
}
