#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cache/base/units.h"
#include "fs/base/text_file.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/commands/progress_bar.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/resolve_path.h"
#include "plan/simulator/model/calibration.h"

namespace clairfs {
namespace {

struct CalibrateArguments {
  CalibrationOptions options;
  double seconds = 2;
  std::string bytes = "1G";
  std::string output;
};

Result<std::string> resolve_what_answers(const std::string& given) {
  auto path = resolve_path(given);
  if (!path) return path;
  if (const Status answers = check_answers(*path); !answers) return answers.error();
  return path;
}

int calibrate_command(CalibrateArguments arguments) {
  CalibrationOptions& options = arguments.options;
  options.time = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(arguments.seconds));
  options.bytes = *parse_size(arguments.bytes);  // checked before
  if (const Status output = check_output(arguments.output); !output) return fail(output.error());
  if (!options.nvme.empty()) {
    if (const auto nvme = resolve_what_answers(options.nvme); !nvme) return fail(nvme.error());
  }
  const auto source = resolve_what_answers(options.source);
  if (!source) return fail(source.error());
  options.source = *source;

  Logger log = stderr_logger();
  const SteadyClock clock;
  const TimePoint start = clock.now();
  Result<Calibration> measured = [&] {
    ProgressBar bar(stderr, clock);
    return calibrate(options, log, [&](const std::string& what, double done) {
      bar.show(progress_text(done, what, clock.now() - start));
    });
  }();
  if (!measured) return fail(measured.error());
  const std::string scenario = calibration_scenario(*measured, options);
  if (!arguments.output.empty()) {
    const Status written = write_text_file(arguments.output, scenario);
    return written ? exit_success : fail(written.error());
  }
  fmt::print("{}", scenario);
  return finish_output();
}

std::string check_bytes(const std::string& text) {
  constexpr uint64_t kLeast = 16 << 20;  // a few pieces for every thread
  const auto bytes = parse_size(text);
  if (!bytes) return bytes.error().message;
  return *bytes >= kLeast ? "" : "at least 16M, so that there is something to measure";
}

}  // namespace

void add_calibrate_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("calibrate", "Measure this system, and write a scenario for 'clairfs simulate'");
  const auto arguments = std::make_shared<CalibrateArguments>();
  command->add_option("SOURCE", arguments->options.source, "A dataset's directory; it is only read")
      ->required();
  command
      ->add_option("--nvme", arguments->options.nvme,
                   "Also measure the disk of this directory, with a temporary file")
      ->type_name("DIR");
  command
      ->add_option("--threads", arguments->options.most_threads,
                   "Measure with 1, 2, 4, ... up to this many requests in flight (default: 8)")
      ->type_name("NUMBER")
      ->check(CLI::Range(1U, 256U));
  command->add_option("--seconds", arguments->seconds, "Time for each point of each table (default: 2)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.05, 600.0));
  command->add_option("--bytes", arguments->bytes, "Most to read or write for each point (default: 1G)")
      ->type_name("SIZE")
      ->check(CLI::Validator(check_bytes, ""));
  command->add_option("-o,--output", arguments->output, "Write the scenario to this file (default: stdout)")
      ->type_name("FILE");
  command->callback([arguments, &status] { status = calibrate_command(*arguments); });
}

}  // namespace clairfs
