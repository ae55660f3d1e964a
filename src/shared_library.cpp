// The shared library is the whole of the archive; CMake wants a source all the same.
