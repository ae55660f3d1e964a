#pragma once

namespace megamoe::sim {

/// How many checks came out as they should.
struct Tally {
  int as_it_should = 0;
  int not_so = 0;
  void add(bool good) { ++(good ? as_it_should : not_so); }
  void add(const Tally& other) {
    as_it_should += other.as_it_should;
    not_so += other.not_so;
  }
};

/// Marks a printed line whose check did not.
inline const char* mark(bool good) { return good ? "" : "   <-- NOT AS IT SHOULD BE"; }

}  // namespace megamoe::sim
