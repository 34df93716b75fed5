#include <cerrno>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "fs/base/text_file.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/commands/progress_bar.h"
#include "plan/simulator/study/plots.h"
#include "plan/simulator/study/report.h"
#include "plan/simulator/study/study.h"

namespace clairfs {
namespace {

struct SimulateArguments {
  std::string scenario;
  std::vector<std::string> policies;
  std::vector<std::string> sweeps;
  bool json = false;
  bool csv = false;
  std::string plot;
};

Result<std::vector<const Policy*>> chosen_policies(const std::vector<std::string>& names) {
  std::vector<const Policy*> policies;
  for (const std::string& name : names) {
    const Policy* policy = find_policy(name);
    if (policy == nullptr) {
      return Error{EINVAL, fmt::format("--policy: '{}' is none of {}", escaped(name), policy_names())};
    }
    policies.push_back(policy);
  }
  if (policies.empty()) {
    for (const Policy& policy : all_policies()) policies.push_back(&policy);
  }
  return policies;
}

Result<std::vector<SweepAxis>> sweep_axes(const std::vector<std::string>& texts) {
  std::vector<SweepAxis> axes;
  for (const std::string& text : texts) {
    auto axis = parse_sweep(text);
    if (!axis) return axis.error();
    axes.push_back(std::move(*axis));
  }
  return axes;
}

Result<std::vector<StudyPoint>> run(const SimulateArguments& arguments) {
  const auto scenario = read_scenario(arguments.scenario);
  if (!scenario) return scenario.error();
  const auto policies = chosen_policies(arguments.policies);
  if (!policies) return policies.error();
  const auto axes = sweep_axes(arguments.sweeps);
  if (!axes) return axes.error();
  Logger log = stderr_logger();
  const SteadyClock clock;
  ProgressBar bar(stderr, clock);
  const TimePoint start = clock.now();
  return run_study(*scenario, *policies, *axes, log, [&](const StudyProgress& progress) {
    if (!bar.enabled()) return;
    const std::string what = fmt::format("{} ({}/{})", progress.policy, progress.run, progress.runs);
    bar.show(progress_text(progress.done, what, clock.now() - start));
  });
}

int simulate_command(const SimulateArguments& arguments) {
  if (const Status fits = check_plot(arguments.plot); !fits) return fail(fits.error());
  const auto points = run(arguments);
  if (!points) return fail(points.error());
  if (!arguments.plot.empty()) {
    const auto picture = study_plots(*points);
    if (!picture) return fail(picture.error());
    const Status written = write_text_file(arguments.plot, *picture);
    if (!written) return fail(written.error());
  }
  fmt::print("{}", arguments.json  ? study_json(*points)
                   : arguments.csv ? study_csv(*points)
                                   : study_table(*points));
  return finish_output();
}

}  // namespace

void add_simulate_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("simulate", "Predict how long a training job takes, and where its data comes from");
  const auto arguments = std::make_shared<SimulateArguments>();
  command->add_option("SCENARIO", arguments->scenario, "The cluster, the dataset and the job, as a TOML file")
      ->required();
  command
      ->add_option("--policy", arguments->policies,
                   "Only this policy; may be given several times (default: all)")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command
      ->add_option("--sweep", arguments->sweeps,
                   "Run with each of the values; several sweeps run all combinations")
      ->type_name("NAME=VALUE,...")
      ->allow_extra_args(false);
  CLI::Option* json = command->add_flag("--json", arguments->json, "As JSON");
  command->add_flag("--csv", arguments->csv, "As comma-separated values")->excludes(json);
  command->add_option("--plot", arguments->plot, "Also draw the results into this SVG file")
      ->type_name("FILE");
  command->footer("Policies: " + policy_names() +
                  ".\nExample: clairfs simulate examples/scenarios/small-cluster-3.toml --policy clairfs "
                  "--sweep ram=0,10G,20G,40G --sweep nvme=0,20G,80G --plot out.svg");
  command->callback([arguments, &status] { status = simulate_command(*arguments); });
}

}  // namespace clairfs
