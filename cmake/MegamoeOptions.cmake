# Compile options shared by every target of the project, and the helper that declares a test.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Paths below the source folder are relative for ccache, so that clones share results.
find_program(MEGAMOE_CCACHE ccache)
if(MEGAMOE_CCACHE)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${MEGAMOE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
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

# megamoe_compile_by_folder(target): with MEGAMOE_BY_FOLDER the target's C++ sources of one folder become
# few translation units, the same ones whatever else the target holds. Most time goes to headers.
function(megamoe_compile_by_folder target)
  if(NOT MEGAMOE_BY_FOLDER)
    return()
  endif()
  set(most 12)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(SORT sources)
  foreach(source IN LISTS sources)
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR count_${folder} "${count_${folder}} + 1")
    math(EXPR part "(${count_${folder}} - 1) / ${most}")
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
    get_filename_component(name ${name} DIRECTORY)
    string(MAKE_C_IDENTIFIER "${name}_${part}" group)
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # An unnamed namespace in a file that another one includes is meant here.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endfunction()

# The Python of tests and tools, with numpy.
set(MEGAMOE_PYTHON "" CACHE FILEPATH "Python with numpy; empty: build/venv of tools/setup.sh, else python3")
if(NOT MEGAMOE_PYTHON)
  set(MEGAMOE_PYTHON ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
  if(NOT EXISTS ${MEGAMOE_PYTHON})
    set(MEGAMOE_PYTHON python3)
  endif()
endif()

# One target per label, tests_LABEL, builds just what the tests with this label need; it exists, maybe
# empty, for the labels that tools/check.sh knows.
foreach(label host tsan asan cuda)
  add_custom_target(tests_${label})
endforeach()

# megamoe_test_properties(name timeout labels target...): time limit, labels, and what the labels build.
# A test that skips a part of itself counts as skipped, never as passed.
function(megamoe_test_properties name timeout labels)
  if(NOT timeout)
    set(timeout 120)
  endif()
  if(MEGAMOE_SANITIZE)
    math(EXPR timeout "3 * ${timeout}")  # instrumented code is several times slower
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}"
    SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  foreach(label IN LISTS labels)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    if(ARGN)
      add_dependencies(tests_${label} ${ARGN})
    endif()
  endforeach()
endfunction()

# megamoe_add_test(NAME name SOURCES a.cpp ... [LIBS lib ...] [TIMEOUT seconds] [LABELS label ...])
# One GoogleTest binary, one ctest entry, always with a time limit. Labels with a meaning of their own:
# tsan and asan (worth running under that sanitizer: threads; raw memory), cuda (needs nvcc, no GPU).
function(megamoe_add_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE megamoe::internal ${ARG_LIBS} GTest::gtest GTest::gtest_main GTest::gmock megamoe_warnings)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  megamoe_test_properties(${ARG_NAME} "${ARG_TIMEOUT}" "${ARG_LABELS}" ${ARG_NAME})
endfunction()

# megamoe_add_script_test(NAME name SCRIPT a.py [ARGS arg ...] [DEPENDS target ...] [TIMEOUT seconds]
# [LABELS label ...]): one ctest entry that runs a Python script with MEGAMOE_PYTHON.
function(megamoe_add_script_test)
  cmake_parse_arguments(ARG "" "NAME;SCRIPT;TIMEOUT" "ARGS;DEPENDS;LABELS" ${ARGN})
  get_filename_component(script ${ARG_SCRIPT} ABSOLUTE)
  add_test(NAME ${ARG_NAME} COMMAND ${MEGAMOE_PYTHON} ${script} ${ARG_ARGS})
  megamoe_test_properties(${ARG_NAME} "${ARG_TIMEOUT}" "${ARG_LABELS}" ${ARG_DEPENDS})
endfunction()
