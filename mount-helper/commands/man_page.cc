#include "mount-helper/options/man_page.h"

#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "fs/base/text_file.h"
#include "mount-helper/commands/commands.h"

namespace clairfs {

void add_man_page_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("man-page", "Fill the option list into a man page");
  command->group("");  // hidden
  const auto path = std::make_shared<std::string>();
  command->add_option("TEMPLATE", *path)->required();
  command->callback([path, &status] {
    const auto text = read_text_file(*path);
    if (!text) {
      status = fail(text.error(), exit_system);
    } else {
      fmt::print("{}", fill_man_page(*text));
    }
  });
}

}  // namespace clairfs
