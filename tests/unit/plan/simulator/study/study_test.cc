#include "plan/simulator/study/study.h"

#include <cerrno>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/simulator/study/chart.h"
#include "plan/simulator/study/plots.h"
#include "plan/simulator/study/report.h"
#include "plan/simulator/study/svg.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/unit/plan/simulator/scenario_support.h"

using namespace clairfs;

namespace {

std::vector<StudyPoint> study(const std::vector<std::string>& policies,
                              const std::vector<std::string>& sweeps) {
  CapturedLog log;
  std::vector<const Policy*> chosen;
  for (const std::string& name : policies) chosen.push_back(find_policy(name));
  std::vector<SweepAxis> axes;
  for (const std::string& sweep : sweeps) axes.push_back(*parse_sweep(sweep));
  const auto points = run_study(tiny_scenario(), chosen, axes, log.logger());
  REQUIRE(points);
  return *points;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("sweep: names and values") {
  const auto axis = parse_sweep("ram=0,10G,20G");
  REQUIRE(axis);
  CHECK(axis->name == "ram");
  CHECK(axis->values == std::vector<std::string>{"0", "10G", "20G"});
  CHECK(parse_sweep("pfs.read={1 = 5, 2 = 6},{1 = 7}")->values ==
        std::vector<std::string>{"{1 = 5, 2 = 6}", "{1 = 7}"});
  for (const char* bad : {"", "ram", "ram=", "=1", "ram=1,,2", "ram=1,"}) {
    INFO(bad);
    const auto refused = parse_sweep(bad);
    REQUIRE(!refused);
    CHECK(refused.error().code == EINVAL);
  }
  CHECK(parse_sweep("ram=1,2,1").error().message == "sweep: ram=1 comes twice");
}

TEST_CASE("study: a sweep runs all combinations, the last axis fastest") {
  const auto points = study({"lower-bound", "clairfs"}, {"ram=0,2", "nvme=0,1,4"});
  REQUIRE(points.size() == 6);
  CHECK(points[1].settings == std::vector<std::pair<std::string, std::string>>{{"ram", "0"}, {"nvme", "1"}});
  CHECK(points[3].settings == std::vector<std::pair<std::string, std::string>>{{"ram", "2"}, {"nvme", "0"}});
  CHECK(points[5].scenario.worker_capacity() == 6);
  for (const StudyPoint& point : points) {
    REQUIRE(point.outcomes.size() == 2);
    CHECK(point.outcomes[0].runtime == point.lower_bound);
  }
  // More storage is never slower here.
  CHECK(points[5].outcomes[1].runtime <= points[0].outcomes[1].runtime);
}

TEST_CASE("study: a value that the scenario cannot take is named") {
  CapturedLog log;
  const auto refused =
      run_study(tiny_scenario(), {find_policy("naive")}, {*parse_sweep("ram=1,-2")}, log.logger());
  REQUIRE(!refused);
  CHECK(refused.error().message == "sweep: ram = -2: want at least 0");
  std::vector<SweepAxis> huge;
  std::string values = "1";
  for (int value = 2; value <= 200; ++value) values += "," + std::to_string(value);
  CHECK(!run_study(tiny_scenario(), {find_policy("naive")},
                   {*parse_sweep("ram=" + values), *parse_sweep("nvme=" + values)}, log.logger()));
}

TEST_CASE("study: progress counts all runs") {
  CapturedLog log;
  double last = 0;
  size_t runs = 0;
  REQUIRE(run_study(tiny_scenario(), {find_policy("naive"), find_policy("staging")},
                    {*parse_sweep("ram=0,1")}, log.logger(), [&](const StudyProgress& progress) {
                      CHECK(progress.done >= last);
                      last = progress.done;
                      runs = progress.runs;
                    }));
  CHECK(last == Approx(1));
  CHECK(runs == 4);
}

TEST_CASE("study report: the table has a line for each policy, aligned") {
  const auto points = study({"lower-bound", "naive", "lbann-preload"}, {});
  const std::string table = study_table(points);
  CHECK(count(table, "\n") == 5);
  CHECK(table.find("tiny: 2 workers, 1 epochs, batch 2, 4 samples, 4.0 MiB") == 0);
  CHECK(table.find("not possible: the dataset") != std::string::npos);
  CHECK(table.find("100.0 %") != std::string::npos);
  const std::string swept = study_table(study({"naive"}, {"ram=0,1"}));
  CHECK(count(swept, "\n") == 3);  // one table, with a column of what was swept
  CHECK(swept.find("ram  policy") == 0);
  CHECK(swept.find("\n1    naive ") != std::string::npos);
}

TEST_CASE("study report: the JSON's fields") {
  const auto all = nlohmann::json::parse(study_json(study({"naive", "lbann-preload"}, {"epochs=1,2"})));
  REQUIRE(all.is_array());
  REQUIRE(all.size() == 4);
  const auto& naive = all[0];
  CHECK(naive["policy"] == "naive");
  CHECK(naive["settings"]["epochs"] == "1");
  CHECK(naive["runtime_s"].get<double>() > naive["stall_s"].get<double>());
  CHECK(naive["ratio_to_lower_bound"].get<double>() > 1);
  CHECK(naive["bytes_by_source"]["pfs"] == 4 << 20);
  CHECK(naive["bytes_by_source"]["peer"] == 0);
  CHECK(naive["bytes_by_source"]["local"] == 0);
  CHECK(naive["keeps_order"] == true);
  CHECK(naive["epoch_s"].size() == 1);
  CHECK(naive["runtime_s"].get<double>() ==
        Approx(naive["compute_s"].get<double>() + naive["stall_s"].get<double>()));
  CHECK(all[1]["policy"] == "lbann-preload");
  CHECK(all[1]["runtime_s"].is_null());
  CHECK(all[1]["refusal"].get<std::string>().find("the dataset") == 0);
}

TEST_CASE("study report: the CSV has as many cells in each line") {
  const std::string csv = study_csv(study({"naive", "lbann-preload"}, {"pfs.read={1 = 5, 2 = 6}"}));
  CHECK(count(csv, "\n") == 3);
  CHECK(csv.find("scenario,pfs.read,policy,runtime_s,stall_s,ratio_to_lower_bound,") == 0);
  CHECK(csv.find("tiny,\"{1 = 5, 2 = 6}\",naive,") != std::string::npos);
  // Commas outside of quotes.
  size_t cells = 0;
  bool quoted = false;
  std::vector<size_t> lines;
  for (const char c : csv) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) ++cells;
    if (c == '\n') lines.push_back(std::exchange(cells, 0));
  }
  CHECK(lines == std::vector<size_t>(3, 15));
}

TEST_CASE("svg: axis ticks are round and reach the greatest value") {
  CHECK(axis_ticks(10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(axis_ticks(0.95, 5).back() == Approx(1));
  CHECK(axis_ticks(0, 5) == std::vector<double>{0, 1});
  CHECK(axis_ticks(5e-324, 5) == std::vector<double>{0, 1});
  CHECK(axis_ticks(61, 6).back() >= 61);
}

TEST_CASE("svg: reserved characters are escaped, control characters left out") {
  Svg svg(10, 10);
  svg.text({1, 2}, "a<b & \"c\"\x01>", {});
  CHECK(svg.document().find(">a&lt;b &amp; \"c\"&gt;</text>") != std::string::npos);
}

TEST_CASE("study plots: thousands are separated") {
  CHECK(number_text(0) == "0");
  CHECK(number_text(0.25) == "0.25");
  CHECK(number_text(999) == "999");
  CHECK(number_text(1000) == "1,000");
  CHECK(number_text(1281167) == "1,281,167");
  CHECK(number_text(2e17) == "2e+17");
}

TEST_CASE("study plots: lines stand over numbers from 0 on, clairfs thick above the others") {
  Svg svg(1000, 400);
  const Series others{"other", {7600, 7601, 7602}};
  Series own{"clairfs", {7500, 7500, 7500}};
  own.own = true;
  Series bound{"bound", {7400, 7400, 7400}};
  bound.bound = true;
  draw_lines(svg, {0, 0, 300, 200}, {{"0", "1G", "3G"}, {0, 1024, 3072}}, {bound, own, others}, "ram",
             "seconds");
  const std::string picture = svg.document();
  const auto drawn = [&](const std::string& colour, double width) {
    return picture.find(fmt::format(R"(fill="none" stroke="{}" stroke-width="{:.2f}")", colour, width));
  };
  const size_t first = drawn(series_colour(0), 2), second = drawn(std::string(kOwnColour), 3);
  const size_t third = drawn(std::string(kBoundColour), 1.5);
  REQUIRE(third != std::string::npos);
  CHECK(first < second);
  CHECK(second < third);
  for (const char* x : {R"(cx="0.00")", R"(cx="100.00")", R"(cx="300.00")"}) CHECK(count(picture, x) == 2);
  CHECK(picture.find(">8,000<") != std::string::npos);
  CHECK(picture.find(">0<") != std::string::npos);
  CHECK(picture.find(">7,500<") == std::string::npos);  // the axis goes down to 0, in large steps
}

TEST_CASE("study plots: titles tell the job, and axes their units") {
  const auto words = [](const std::vector<std::string>& sweeps, const std::vector<std::string>& wanted) {
    const auto picture = study_plots(study({"naive"}, sweeps));
    REQUIRE(picture);
    for (const std::string& text : wanted) {
      INFO(text);
      CHECK(picture->find(">" + text + "<") != std::string::npos);
    }
  };
  const std::string name = tiny_scenario().name;
  const std::string job = ": 2 workers, 1 epoch, 4 samples";
  words({}, {name + ": where the runtime goes" + job, "seconds (* changes the order of the samples)",
             "epoch (the first with what is loaded before it)", "seconds", "reads", "samples"});
  words({"ram=0,1G"},
        {name + ": runtime by ram" + job, "ram capacity, MB where no unit is written", "runtime, seconds"});
  words({"worker.compute=10,20"}, {"worker.compute, MB/s"});
  words({"compute=10,20"}, {"compute, MB/s"});
  // What is swept is no part of the title.
  words({"job.epochs=2,3"}, {name + ": runtime by job.epochs: 2 workers, 4 samples", "job.epochs"});
}

TEST_CASE("study plots: words of a sweep are equally spaced, capacities as their sizes") {
  const auto numbers = study_plots(study({"clairfs"}, {"ram=0,1,4"}));
  REQUIRE(numbers);
  for (const char* x : {R"(cx="90.00")", R"(cx="230.00")", R"(cx="650.00")"})
    CHECK(numbers->find(x) != std::string::npos);
  const auto words = study_plots(study({"clairfs"}, {"job.distribution=uniform,whole"}));
  REQUIRE(words);
  for (const char* x : {R"(cx="230.00")", R"(cx="510.00")"}) CHECK(words->find(x) != std::string::npos);
}

TEST_CASE("study plots: one picture with three charts, or one of a sweep") {
  const auto single = study_plots(study({"lower-bound", "naive", "lbann-preload", "clairfs"}, {}));
  REQUIRE(single);
  CHECK(single->find("<?xml") == 0);
  for (const char* words : {"where the runtime goes", "Time of each epoch", "How often a worker reads",
                            ">Naive<", ">not possible<", ">lower bound<"}) {
    INFO(words);
    CHECK(single->find(words) != std::string::npos);
  }
  const auto sweep = study_plots(study({"clairfs"}, {"ram=0,1,2", "nvme=0,4"}));
  REQUIRE(sweep);
  CHECK(count(*sweep, "<polyline") == 3);  // two lines and the lower bound
  CHECK(sweep->find(">clairfs, nvme=4<") != std::string::npos);
}

TEST_CASE("study plots: clairfs has a colour of its own") {
  const auto others = study_plots(study({"naive", "lbann-preload"}, {"ram=0,1"}));
  const auto with_clairfs = study_plots(study({"naive", "clairfs"}, {"ram=0,1"}));
  REQUIRE((others && with_clairfs));
  CHECK(others->find(kOwnColour) == std::string::npos);
  CHECK(with_clairfs->find(kOwnColour) != std::string::npos);
}
