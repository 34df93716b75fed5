// Systemd's protocol for services, without its library: sd_notify(3) and the journal's levels (sd-daemon(3)).
#pragma once

#include <memory>
#include <string>

#include <spdlog/formatter.h>

namespace clairfs {

/// Tells the service manager `state` ("READY=1"), where one wants to know (Type=notify). Lines are separated
/// by newlines. One that takes nothing is given up after two seconds. Any thread.
void notify_service_manager(const std::string& state);

/// Whether stderr goes to the journal, as $JOURNAL_STREAM says.
bool stderr_is_journal();

/// Lines as the journal takes them: "<4>" before a warning, and so on. `pattern` as spdlog has it.
std::unique_ptr<spdlog::formatter> journal_formatter(const std::string& pattern);

}  // namespace clairfs
