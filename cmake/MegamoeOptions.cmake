# Compile options shared by every target of the project, and the helper that declares a test.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(MEGAMOE_CCACHE ccache)
if(MEGAMOE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MEGAMOE_CCACHE})
endif()

# Sanitizers apply to every target, third-party headers included, so that reports cross no blind spot.
if(MEGAMOE_SANITIZE)
  add_compile_options(-fsanitize=${MEGAMOE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MEGAMOE_SANITIZE})
endif()

# megamoe_warnings: warnings for our own host code. -ffp-contract=off keeps FP32 results equal on every
# machine: a fused multiply-add happens only where the code says std::fma.
add_library(megamoe_warnings INTERFACE)
target_compile_options(megamoe_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror -ffp-contract=off>)

# megamoe_add_test(NAME name SOURCES a.cpp ... [LIBS lib ...] [TIMEOUT seconds] [LABELS label ...])
# One GoogleTest binary, one ctest entry, always with a time limit.
function(megamoe_add_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE megamoe::internal ${ARG_LIBS} GTest::gtest GTest::gtest_main GTest::gmock megamoe_warnings)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
