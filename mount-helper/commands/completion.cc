#include "mount-helper/options/completion.h"

#include <memory>

#include <fmt/format.h>

#include "mount-helper/commands/commands.h"

namespace clairfs {

void add_completion_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("completion", "Print the completions for a shell");
  command->group("");  // hidden
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command->callback([&app, shell, &status] {
    const auto script = completion_script(app, *shell);
    if (!script) {
      status = fail(script.error());
      return;
    }
    fmt::print("{}", *script);
    status = finish_output();
  });
}

}  // namespace clairfs
