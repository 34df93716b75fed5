# MPI's declarations at build time, and the name under which its library is loaded when a job needs it
# (net/mpi/library.h). Nothing links it: clairfs must start where there is none.
find_package(MPI REQUIRED COMPONENTS C)

foreach(library IN LISTS MPI_C_LIBRARIES)
  execute_process(COMMAND ${CMAKE_READELF} -d ${library} OUTPUT_VARIABLE dynamic ERROR_QUIET)
  if(dynamic MATCHES "SONAME[^\n]*\\[(libmpi[^]]*)\\]")
    set(CLAIRFS_MPI_SONAME ${CMAKE_MATCH_1})
    break()
  endif()
endforeach()
if(NOT CLAIRFS_MPI_SONAME)
  message(FATAL_ERROR "No shared MPI library among ${MPI_C_LIBRARIES}: install libmpich-dev")
endif()
message(STATUS "MPI is loaded at run time as ${CLAIRFS_MPI_SONAME}")

add_library(clairfs_mpi INTERFACE)
target_include_directories(clairfs_mpi SYSTEM INTERFACE ${MPI_C_INCLUDE_DIRS})
target_link_libraries(clairfs_mpi INTERFACE ${CMAKE_DL_LIBS})
# MPI must find it in the program: see net/mpi/ucx_sends.h.
target_link_options(clairfs_mpi INTERFACE LINKER:--export-dynamic-symbol=ucp_tag_send_nbx)
set_source_files_properties(net/mpi/library.cc PROPERTIES
                            COMPILE_DEFINITIONS CLAIRFS_MPI_SONAME="${CLAIRFS_MPI_SONAME}")
