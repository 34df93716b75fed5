# What is installed beside the programs, and `cmake --build BUILD --target package`: a .deb for the system that it is
# built on, in BUILD. The preset `package` builds nothing but what goes into it.
set(CLAIRFS_DOC ${CMAKE_INSTALL_DATADIR}/doc/clairfs)

# The completions come from the commands in the binary.
foreach(shell bash zsh fish)
  set(built ${PROJECT_BINARY_DIR}/completions/clairfs.${shell})
  add_custom_command(OUTPUT ${built} DEPENDS clairfs VERBATIM
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/completions
                     COMMAND clairfs completion ${shell} > ${built})
  list(APPEND completions ${built})
endforeach()
add_custom_target(completions ALL DEPENDS ${completions})
set(built ${PROJECT_BINARY_DIR}/completions/clairfs)
install(FILES ${built}.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME clairfs)
# Where Debian's zsh looks for what packages bring.
install(FILES ${built}.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _clairfs)
install(FILES ${built}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# Where Debian's Python looks for modules that packages bring.
install(FILES mount-helper/python/clairfs.py DESTINATION lib/python3/dist-packages)

install(FILES README.md DESTINATION ${CLAIRFS_DOC})
install(DIRECTORY examples DESTINATION ${CLAIRFS_DOC} PATTERN "quickstart*" EXCLUDE)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME clairfs)
set(CPACK_PACKAGE_CONTACT "clairfs maintainers <maintainers@clairfs.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)  # a tenth of the size
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "read-only filesystem that caches machine-learning datasets")
set(CPACK_PACKAGE_DESCRIPTION
    "A node mounts a view of the dataset, and the training script reads that
instead of the parallel filesystem. In between are a RAM tier and an NVMe
tier, and those of the other nodes of the job. Told the seed of the shuffle,
clairfs knows which files will be read in which order, and fetches them ahead.
.
The nodes of a job need MPICH; a mount of a single node does not.")
# Libraries: what the binary is linked with. fusermount3 mounts for users other than root. clairfs.py is of any
# version of Python 3.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "fuse3, python3")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS mpich)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/mount-helper/package/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# What Debian wants of any package, and nobody of an installation by hand.
set(CPACK_CLAIRFS_FILES ${PROJECT_SOURCE_DIR}/mount-helper/package)
set(CPACK_PRE_BUILD_SCRIPTS ${CPACK_CLAIRFS_FILES}/finish.cmake)
include(CPack)
