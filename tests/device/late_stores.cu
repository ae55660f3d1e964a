#include "tests/device/late_stores.cuh"
