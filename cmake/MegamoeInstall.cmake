# Installation: headers, both forms of the library, the program, and what finds them: a CMake
# package and a pkg-config file. All paths in those are relative, so that the prefix may move.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/megamoe)
install(TARGETS megamoe megamoe_shared EXPORT megamoe_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS megamoe_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/megamoe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")

install(EXPORT megamoe_targets FILE megamoeTargets.cmake NAMESPACE megamoe:: DESTINATION ${package_dir})
configure_package_config_file(cmake/megamoeConfig.cmake.in megamoeConfig.cmake INSTALL_DESTINATION ${package_dir})
# Below 1.0 a minor version may change the interface.
write_basic_package_version_file(megamoeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/megamoeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/megamoeConfigVersion.cmake
  DESTINATION ${package_dir})

# What a static link needs beside the archive.
set(MEGAMOE_PC_PRIVATE "-lstdc++ -lm -pthread")
if(MEGAMOE_CUDA)
  set(MEGAMOE_PC_PRIVATE "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt ${MEGAMOE_PC_PRIVATE}")
endif()
file(RELATIVE_PATH MEGAMOE_PC_UP "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" MEGAMOE_PC_UP "${MEGAMOE_PC_UP}")
configure_file(cmake/megamoe.pc.in megamoe.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/megamoe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
