# cmake -D SOURCE=DIR -D OUTPUT=FILE -P commit.cmake
# Writes the commit of the work tree SOURCE as a function (mount-helper/options/version.h), if it is not what the file
# has. It is empty without git, in an unpacked tarball, and in a folder that merely lies in somebody's repository.
cmake_path(GET SOURCE PARENT_PATH above)
set(ENV{GIT_CEILING_DIRECTORIES} ${above})
set(ENV{GIT_OPTIONAL_LOCKS} 0)  # a build beside somebody's git commit disturbs it not
unset(ENV{GIT_DIR})
find_program(GIT git)
set(commit "")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "mount-helper/options/version.h"

std::string_view clairfs::commit_id() {
  return "@commit@";
}
]])
