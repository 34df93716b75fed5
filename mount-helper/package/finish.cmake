# Run by CPack on the installed tree before it becomes a package: licence, changelog and compressed manuals, as Debian's
# policy has them (12.1, 12.5, 12.7).
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX})
set(doc ${root}/share/doc/clairfs)
file(MAKE_DIRECTORY ${doc})
file(COPY ${CPACK_CLAIRFS_FILES}/copyright ${CPACK_CLAIRFS_FILES}/changelog DESTINATION ${doc})
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${doc}/changelog.Debian "clairfs (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; \
urgency=medium\n\n  * Version ${CPACK_PACKAGE_VERSION}.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
file(GLOB_RECURSE manuals ${root}/share/man/*.[1-9])
execute_process(COMMAND gzip -9 -n -f ${doc}/changelog ${doc}/changelog.Debian ${manuals} COMMAND_ERROR_IS_FATAL ANY)
file(CREATE_LINK mount.clairfs.8.gz ${root}/share/man/man8/mount.fuse.clairfs.8.gz SYMBOLIC)
file(GLOB_RECURSE data ${root}/share/*)
file(CHMOD ${data} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
