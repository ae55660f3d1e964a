#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "cli/progress.hpp"
#include "cli/verbs.hpp"

int main(int argc, char** argv) {
  using namespace megamoe::cli;
  // A file beyond its size limit is an error of the write that exceeds it.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    Io io{.out = std::cout, .err = std::cerr, .err_is_terminal = stderr_is_terminal()};
    const int status = dispatch({argv + std::min(argc, 1), argv + argc}, io);
    std::cout.flush();
    if (std::cout.good()) return status;
    std::fputs("megamoe: cannot write to standard output\n", stderr);
  } catch (const std::bad_alloc&) {
    std::fputs("megamoe: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "megamoe: %s\n", one_line(error.what()).c_str());
  }
  return kCheckFailed;
}
